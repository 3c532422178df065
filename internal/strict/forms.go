package strict

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/fumehood/fumehood"
)

// common are forms that several kinds of documents have.
var common = map[string]Form{
	"name":     {Wanted: "letters, digits, '.', '_' and '-', as in an image's tag", Pattern: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)},
	"image":    {Wanted: "an image reference such as python:3.12-slim", Pattern: regexp.MustCompile(`^\S+$`)},
	"path":     {Wanted: "an absolute path in the container that is not its root", Pattern: regexp.MustCompile(`^/.*[^/.]`)},
	"network":  {Wanted: "none, bridge, host or a network's name", Pattern: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)},
	"runtime":  {Wanted: "the name of a container runtime such as runsc", Pattern: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)},
	"user":     {Wanted: `a user such as "1000:1000" or nobody`, Pattern: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)},
	"duration": {Wanted: "a duration such as 90s or 10m, or none", Pattern: regexp.MustCompile(`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^none$`), Parse: parseDuration},
	"size":     {Wanted: "a size such as 512MiB or 2g, or none", Pattern: sizeRE, Parse: parseSize},
	"cores":    {Wanted: "a number above 0, or none", Pattern: regexp.MustCompile(`^none$`), Parse: parseCores},
	"count":    {Wanted: "a whole number above 0, or none", Pattern: regexp.MustCompile(`^none$`), Parse: parseCount},
}

// Forms are those that several kinds of documents have, and more.
func Forms(more map[string]Form) map[string]Form {
	all := maps.Clone(common)
	maps.Copy(all, more)
	return all
}

// sizeRE matches the text of a size.
var sizeRE = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?|\.[0-9]+) ?([kKmMgGtTpP]([iI]?[bB])?|[bB])?$|^[nN][oO][nN][eE]$`)

// ParseSize is spec.ParseSize.
func ParseSize(s string) (int64, error) {
	if strings.EqualFold(s, "none") {
		return fumehood.NoLimit, nil
	}
	n, err := units.RAMInBytes(s)
	if err != nil || n <= 0 || !sizeRE.MatchString(s) {
		return 0, fmt.Errorf("%q is no size: write a number and a unit, such as 512MiB or 2g, or none", s)
	}
	return n, nil
}

func parseDuration(s Scalar) any {
	switch d, err := time.ParseDuration(s.Value); {
	case !s.IsText():
		return nil
	case s.Value == "none":
		return time.Duration(fumehood.NoLimit)
	case err == nil && d > 0:
		return d
	}
	return nil
}

func parseSize(s Scalar) any {
	if n, ok := s.Integer(); ok && n > 0 {
		return n
	}
	if n, err := ParseSize(s.Value); err == nil && s.IsText() {
		return n
	}
	return nil
}

func parseCores(s Scalar) any {
	var cores float64
	switch {
	case s.IsText():
		cores = fumehood.NoLimit // the pattern takes no other text
	case s.Tag != "!!int" && s.Tag != "!!float", s.Decode(&cores) != nil, !(cores > 0), math.IsInf(cores, 0):
		return nil
	}
	return cores
}

func parseCount(s Scalar) any {
	if s.IsText() {
		return int64(fumehood.NoLimit) // the pattern takes no other text
	}
	if n, ok := s.Integer(); ok && n > 0 {
		return n
	}
	return nil
}
