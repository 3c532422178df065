package spec

import (
	"math"
	"regexp"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/lazaret/lazaret"
)

// form is what a value must look like beyond its type. The decoder and the JSON Schema are both made
// of these, by the names in the fields' form tags.
type form struct {
	wanted  string           // for messages
	choices []string         // the texts there are; nil takes others
	pattern *regexp.Regexp   // what a text must match, in the syntax that Go and ECMAScript share; nil takes any
	parse   func(scalar) any // makes the value of a field that is no text; nil of what is none
}

var forms = map[string]form{
	"type":        {choices: []string{TypeDocker, TypeLocal}},
	"name":        {wanted: "letters, digits, '.', '_' and '-', as in an image's tag", pattern: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)},
	"image":       {wanted: "an image reference such as python:3.12-slim", pattern: regexp.MustCompile(`^\S+$`)},
	"binary":      {choices: []string{"docker", "podman", "nerdctl"}},
	"path":        {wanted: "an absolute path in the container that is not its root", pattern: regexp.MustCompile(`^/.*[^/.]`)},
	"target":      {wanted: "an absolute path in the container with :ro or :rw behind it if wanted", pattern: regexp.MustCompile(`^/[^:]*[^/.:][^:]*(:ro|:rw)?$`)},
	"mode":        {choices: []string{"ro", "rw"}},
	"network":     {wanted: "none, bridge, host or a network's name", pattern: regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)},
	"user":        {wanted: `a user such as "1000:1000" or nobody`, pattern: regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)},
	"variable":    {wanted: "a variable's name", pattern: regexp.MustCompile(`^[^=]+$`)},
	"host path":   {wanted: "a path of the host", pattern: regexp.MustCompile(`.`)},
	"host port":   {wanted: "a port from 0 to 65535", pattern: regexp.MustCompile(`^([0-9]|[1-9][0-9]{1,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$`)},
	"compression": {choices: []string{"gz", "xz", "zst", "none"}},
	"duration":    {wanted: "a duration such as 90s or 10m, or none", pattern: regexp.MustCompile(`^(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^none$`), parse: parseDuration},
	"size":        {wanted: "a size such as 512MiB or 2g, or none", pattern: sizeRE, parse: parseSize},
	"cores":       {wanted: "a number above 0, or none", pattern: regexp.MustCompile(`^none$`), parse: parseCores},
	"count":       {wanted: "a whole number above 0, or none", pattern: regexp.MustCompile(`^none$`), parse: parseCount},
}

// takes says whether the form takes a text.
func (f form) takes(text string) bool {
	if f.choices != nil {
		return slices.Contains(f.choices, text)
	}
	return f.pattern == nil || f.pattern.MatchString(text)
}

// what is what a message says was wanted.
func (f form) what() string {
	switch {
	case f.choices != nil:
		return alternatives(f.choices)
	case f.wanted != "":
		return f.wanted
	}
	return "text"
}

// scalar is a plain value of a document.
type scalar struct{ *yaml.Node }

// text says whether the value is text. YAML 1.2 has no dates, so one is text.
func (s scalar) text() bool {
	return s.Kind == yaml.ScalarNode && (s.Tag == "!!str" || s.Tag == "!!timestamp")
}

// integer is a whole number; ok is false where the value is none.
func (s scalar) integer() (n int64, ok bool) {
	return n, s.Kind == yaml.ScalarNode && s.Tag == "!!int" && s.Decode(&n) == nil
}

func parseDuration(s scalar) any {
	switch d, err := time.ParseDuration(s.Value); {
	case !s.text():
		return nil
	case s.Value == "none":
		return time.Duration(lazaret.NoLimit)
	case err == nil && d > 0:
		return d
	}
	return nil
}

func parseSize(s scalar) any {
	if n, ok := s.integer(); ok && n > 0 {
		return n
	}
	if n, err := ParseSize(s.Value); err == nil && s.text() {
		return n
	}
	return nil
}

func parseCores(s scalar) any {
	var cores float64
	switch {
	case s.text():
		cores = lazaret.NoLimit // the pattern takes no other text
	case s.Tag != "!!int" && s.Tag != "!!float", s.Decode(&cores) != nil, !(cores > 0), math.IsInf(cores, 0):
		return nil
	}
	return cores
}

func parseCount(s scalar) any {
	if s.text() {
		return int64(lazaret.NoLimit) // the pattern takes no other text
	}
	if n, ok := s.integer(); ok && n > 0 {
		return n
	}
	return nil
}
