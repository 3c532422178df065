package strict

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/docker/go-units"
	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
)

// common are forms that several kinds of documents use.
var common = map[string]Form{
	"name":      {Wanted: "letters, digits, '.', '_' and '-', as in an image's tag", Pattern: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)},
	"image":     {Wanted: "an image reference such as python:3.12-slim", Pattern: regexp.MustCompile(`^\S+$`)},
	"path":      {Wanted: "an absolute path in the container that is not its root", Pattern: regexp.MustCompile(`^/.*[^/.]`)},
	"network":   {Wanted: "none, bridge, host or a network's name", Pattern: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)},
	"runtime":   {Wanted: "the name of a container runtime such as runsc", Pattern: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)},
	"seccomp":   {Choices: []string{fumehood.SeccompBrowsers}},
	"user":      {Wanted: `a user such as "1000:1000" or nobody`, Pattern: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)},
	"duration":  {Wanted: "a duration such as 90s or 10m, or none", Pattern: regexp.MustCompile(`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^none$`), Parse: parseDuration},
	"memory":    atLeast("a size from 6MiB on such as 512MiB or 2g, or none", sizeRE, parseSize, fumehood.MinMemory),
	"disk":      atLeast("a size from 1MiB on such as 512MiB or 2g, or none", sizeRE, parseSize, fumehood.MinDisk),
	"pids":      atLeast("a whole number from 48 on, or none", noneRE, orNone(whole(math.MaxInt64)), fumehood.MinPIDs),
	"bytes":     {Wanted: "a size such as 64MiB", Pattern: regexp.MustCompile(sizePattern), Parse: parseSize, Schema: sizeSchema},
	"tmpfs":     {Wanted: "an absolute path in the sandbox with options, such as /scratch:size=64MiB,mode=0700", Pattern: regexp.MustCompile(`^/[^:]*[^/.:][^:]*(:.*)?$`), Valid: isTmpfs},
	"cores":     {Wanted: "a number above 0, or none", Pattern: noneRE, Parse: orNone(above0), Schema: map[string]any{"type": []string{"string", "number"}, "exclusiveMinimum": 0}},
	"number":    {Wanted: "a whole number above 0", Parse: whole(math.MaxInt32), Schema: map[string]any{"type": []string{"integer"}, "minimum": 1, "maximum": math.MaxInt32}},
	"tolerance": {Wanted: "a number from 0 on, of at most 15 digits", Parse: tolerance, Schema: map[string]any{"type": []string{"number"}, "minimum": 0}},
}

// atLeast returns the form of a limit, which is a number from least on, or none. A text with a unit is not bounded by
// the schema.
func atLeast(wanted string, pattern *regexp.Regexp, read func(*yaml.Node) any, least int64) Form {
	return Form{
		Wanted: wanted, Pattern: pattern, Schema: map[string]any{"type": []string{"string", "integer"}, "minimum": least},
		Parse: func(n *yaml.Node) any {
			if limit, ok := read(n).(int64); ok && limit > 0 && limit < least {
				return nil
			}
			return read(n)
		},
	}
}

const sizePattern = `^([0-9]+(\.[0-9]*)?|\.[0-9]+) ?([kKmMgGtTpP]([iI]?[bB])?|[bB])?$`

var (
	sizeRE     = regexp.MustCompile(sizePattern + `|^[nN][oO][nN][eE]$`)
	noneRE     = regexp.MustCompile(`^none$`)
	sizeSchema = map[string]any{"type": []string{"string", "integer"}, "minimum": 1}
)

// Forms returns the common forms, together with more.
func Forms(more map[string]Form) map[string]Form {
	all := maps.Clone(common)
	maps.Copy(all, more)
	return all
}

// ParseSize implements spec.ParseSize.
func ParseSize(s string) (int64, error) {
	if strings.EqualFold(s, "none") {
		return fumehood.NoLimit, nil
	}
	n, err := units.RAMInBytes(s)
	if err != nil || n <= 0 || !sizeRE.MatchString(s) {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, such as 512MiB or 2g, or none", s)
	}
	return n, nil
}

// isTmpfs reports whether a file system in memory is possible. Limits are those without any.
func isTmpfs(text string) bool {
	spec := fumehood.Spec{Tmpfs: []string{text}, Limits: fumehood.Limits{Memory: fumehood.NoLimit}}
	return spec.Validate() == nil
}

func parseDuration(n *yaml.Node) any {
	switch d, err := time.ParseDuration(n.Value); {
	case !IsText(n):
		return nil
	case n.Value == "none":
		return fumehood.NoLimit
	case err == nil && d > 0:
		return d
	}
	return nil
}

func parseSize(n *yaml.Node) any {
	if size, err := ParseSize(n.Value); err == nil && IsText(n) {
		return size
	}
	return whole(math.MaxInt64)(n)
}

// orNone reads a text as no limit. It is for forms whose pattern accepts only the text none.
func orNone(read func(*yaml.Node) any) func(*yaml.Node) any {
	return func(n *yaml.Node) any {
		if IsText(n) {
			return fumehood.NoLimit
		}
		return read(n)
	}
}

// whole reads a whole number from 1 to most.
func whole(most int64) func(*yaml.Node) any {
	return func(n *yaml.Node) any {
		if i, ok := Integer(n); ok && i > 0 && i <= most {
			return i
		}
		return nil
	}
}

// from0 reads a finite number that is not negative.
func from0(n *yaml.Node) any {
	var x float64
	if n.Tag != "!!int" && n.Tag != "!!float" || n.Decode(&x) != nil || !(x >= 0) || math.IsInf(x, 0) {
		return nil
	}
	return x
}

// tolerance reads a number from 0 on that a float64 can hold so that its shortest decimal form is the number as written.
func tolerance(n *yaml.Node) any {
	x := from0(n)
	mantissa, _, _ := strings.Cut(strings.ToLower(n.Value), "e")
	digits := strings.Trim(strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, mantissa), "0")
	if f, ok := x.(float64); ok && (len(digits) > 15 || digits != "" && f < 1e-300) { // less precise below
		return nil
	}
	return x
}

// above0 reads a number above 0.
func above0(n *yaml.Node) any {
	if x := from0(n); x != 0.0 {
		return x
	}
	return nil
}
