package compose

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood/internal/strict"
)

// Warning is about a value that the project has otherwise than its author may expect. It does not show the value.
type Warning struct {
	Key    string // such as "services.web.environment.DATE"
	At     string // file:line
	Reason string
}

const (
	readAsTime   = "an unquoted date is read as a time: quote it"
	readAsNumber = "an unquoted number has another text than it is written with: quote it"
)

// Warnings returns the warnings about the project's files, in the order of the files.
func (p *Project) Warnings() []Warning { return p.warnings }

// texts are keys whose entries are texts for programs. YAML reads their values as numbers and times all the same.
var texts = []string{"environment", "labels", "args", "annotations", "driver_opts", "options", "sysctls", "storage_opt", "extra_hosts"}

// octal matches a mode that is written in octal, without the 0 that says so.
var octal = regexp.MustCompile(`^[1-7][0-7]{2,3}$`)

// findMisread returns the values that YAML reads otherwise than they are written, in all files that were scanned.
func (l *loading) findMisread() (all []Warning) {
	l.eachScalar(func(keys []string, n *yaml.Node, at string, _ types.Mapping) {
		if reason := misread(keys, n); reason != "" {
			all = append(all, Warning{strings.Join(keys, "."), at, reason})
		}
	})
	return all
}

// misread returns why a value is read otherwise than it is written, or "" if it is not.
func misread(keys []string, n *yaml.Node) string {
	var value any
	switch {
	case n.Style != 0:
	case len(keys) > 4 && keys[len(keys)-1] == "mode" && octal.MatchString(n.Value):
		if mode, err := strconv.Atoi(n.Value); err == nil {
			return fmt.Sprintf("the mode %d is decimal, %#o in octal: write 0%d", mode, mode, mode)
		}
	case n.Tag == "!!timestamp":
		return readAsTime
	case len(keys) > 1 && slices.Contains(texts, keys[len(keys)-2]) && slices.Contains([]string{"!!int", "!!float"}, n.Tag):
		if n.Decode(&value) == nil && fmt.Sprint(value) != n.Value {
			return readAsNumber
		}
	}
	return ""
}

// eachScalar calls f with the scalar values of all files that were scanned, their keys and what their files see. It
// calls f once for a line of a file, whatever refers to it, and not for extensions.
func (l *loading) eachScalar(f func(keys []string, n *yaml.Node, at string, env types.Mapping)) {
	for i, root := range l.places.roots {
		file := l.places.files[i]
		env, scanned := l.envs[file]
		if !scanned {
			continue // its documents are not known to be bounded
		}
		seen := map[*yaml.Node]bool{}
		scalars(root, nil, func(keys []string, n *yaml.Node) {
			if !seen[n] {
				seen[n] = true
				f(keys, n, place{file: file, line: n.Line}.String(), env)
			}
		})
	}
}

// scalars calls f with the scalar values below a node. It follows aliases and merge keys.
func scalars(n *yaml.Node, keys []string, f func(keys []string, n *yaml.Node)) {
	switch n = strict.Target(n); {
	case n == nil || n.Tag == "!reset":
	case n.Kind == yaml.ScalarNode:
		f(keys, n)
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			scalars(item, append(keys, strconv.Itoa(i)), f)
		}
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			switch key := n.Content[i].Value; {
			case key == "<<" && strict.Target(n.Content[i+1]).Kind == yaml.SequenceNode:
				for _, item := range strict.Target(n.Content[i+1]).Content {
					scalars(item, keys, f)
				}
			case key == "<<":
				scalars(n.Content[i+1], keys, f)
			case !strings.HasPrefix(key, "x-"):
				scalars(n.Content[i+1], append(keys, key), f)
			}
		}
	}
}

// wrongValue returns the error about the value that has made compose-go fail, or nil if it is not known.
func (l *loading) wrongValue(err error) (found error) {
	text := err.Error()
	infinite, date := strings.Contains(text, "json: unsupported value"), strings.Contains(text, "time.Time") || strings.Contains(text, "UTC")
	if !infinite && !date {
		return nil
	}
	visit := func(keys []string, n *yaml.Node, at string, env types.Mapping) {
		switch {
		case found != nil:
		case infinite && isInfinite(n, env):
			found = fmt.Errorf("%s: %s: the value is infinite or not a number: quote it, or write a number", at, strings.Join(keys, "."))
		case date && misread(keys, n) == readAsTime:
			found = fmt.Errorf("%s: %s: %s", at, strings.Join(keys, "."), readAsTime)
		}
	}
	l.eachScalar(visit)
	for i, root := range l.places.roots { // extensions too
		if env, scanned := l.envs[l.places.files[i]]; scanned {
			values(root, nil, func(keys []string, n *yaml.Node) {
				visit(keys, n, place{file: l.places.files[i], line: n.Line}.String(), env)
			})
		}
	}
	return found
}

// isInfinite reports whether a value is no finite number for compose-go, which converts texts for some keys.
func isInfinite(n *yaml.Node, env types.Mapping) bool {
	if n.Tag == "!!float" {
		var x float64
		return n.Decode(&x) == nil && (math.IsInf(x, 0) || math.IsNaN(x))
	}
	text, err := expand(n.Value, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		return false
	}
	x, err := strconv.ParseFloat(text, 64)
	return err == nil && (math.IsInf(x, 0) || math.IsNaN(x))
}
