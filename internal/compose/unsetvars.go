package compose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/template"
	"github.com/distribution/reference"
	"go.yaml.in/yaml/v3"
)

// Unset is a variable that the project's files use without a default although it is not set. It is empty there.
type Unset struct {
	Name string
	At   string // file:line

	keys []string // of the value that uses it
}

// OnlyNamed is why a variable of this process may not be set for a project.
const OnlyNamed = "of this process's variables, a project sees only those that are named"

// Unset returns the variables that are not set, each with its first use.
func (p *Project) Unset() []Unset {
	var first []Unset
	seen := map[string]bool{}
	for _, u := range p.unset {
		if !seen[u.Name] {
			seen[u.Name] = true
			first = append(first, u)
		}
	}
	return first
}

// findUnset returns the uses of variables that are not set, in all files that were scanned.
func (l *loading) findUnset() (all []Unset) {
	for i, root := range l.places.roots {
		file := l.places.files[i]
		env, scanned := l.envs[file]
		if !scanned {
			continue
		}
		lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		values(root, nil, func(keys []string, value *yaml.Node) {
			for _, name := range unsetIn(value.Value, lookup) {
				all = append(all, Unset{name, place{file: file, line: value.Line}.String(), slices.Clone(keys)})
			}
		})
	}
	return all
}

// values calls f with the scalar values below a node, and with their keys. It visits what an alias stands for only
// once, at its anchor.
func values(node *yaml.Node, keys []string, f func(keys []string, value *yaml.Node)) {
	switch {
	case node.Tag == "!reset": // compose-go drops it first
	case node.Kind == yaml.ScalarNode:
		f(keys, node)
	case node.Kind == yaml.SequenceNode:
		for _, item := range node.Content {
			values(item, keys, f)
		}
	case node.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			values(node.Content[i+1], append(keys, node.Content[i].Value), f)
		}
	}
}

// nameFirst matches the name at the beginning of a reference in braces.
var nameFirst = regexp.MustCompile(`^\w+`)

// unsetIn returns the names of the variables that compose-go replaces by nothing in a text, because they are not set
// and have no default. A default may be empty, as in ${A-}.
func unsetIn(text string, lookup template.Mapping) (names []string) {
	for _, match := range template.DefaultPattern.FindAllString(text, -1) {
		name, inner, after := match[1:], "", ""
		switch name[0] {
		case '$': // an escaped $
			continue
		case '{':
			end := closing(match)
			if end < 0 {
				continue // compose-go reports it
			}
			inner, after = match[2:end], match[end+1:]
			name = nameFirst.FindString(inner)
			inner = inner[len(name):]
		}
		value, set := lookup(name)
		operator := strings.TrimPrefix(inner, ":")
		there := set && (value != "" || operator == inner)
		switch {
		case inner == "" && !set:
			names = append(names, name)
		case strings.HasPrefix(operator, "-") && !there, strings.HasPrefix(operator, "+") && there:
			names = append(names, unsetIn(operator[1:], lookup)...)
		}
		names = append(names, unsetIn(after, lookup)...)
	}
	return names
}

// closing returns the index of the brace that closes the first one of a text, or -1.
func closing(text string) int {
	open := 0
	for i, c := range text {
		switch c {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// emptyImage matches compose-go's error about a service whose image is empty.
var emptyImage = regexp.MustCompile(`service "([^"]+)" has neither an image nor a build context`)

// missingImage returns the error about a service whose image is empty because of unset variables, or nil for another
// error.
func (l *loading) missingImage(err error) error {
	m := emptyImage.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	uses := inImages(l.findUnset(), m[1])
	if uses == nil {
		return nil
	}
	return fmt.Errorf("%s: services.%s.image: it is empty: %s", uses[0].At, m[1], notSet(uses))
}

// image rejects the name of an image that is not valid because of unset variables.
func (c *checking) image(service, image string) {
	if _, err := reference.ParseAnyReference(image); err == nil || image == "" {
		return
	}
	if uses := inImages(c.unset, service); uses != nil {
		c.refuse([]string{"services", service, "image"}, "%q is not the name of an image: %s", image, notSet(uses))
	}
}

// inImages returns the uses in a service's image or, if there are none, those in any image: another service, or an
// anchor, may define it.
func inImages(uses []Unset, service string) (in []Unset) {
	for _, keys := range [][]string{{"services", service, "image"}, {"image"}} {
		for _, u := range uses {
			if len(u.keys) >= len(keys) && slices.Equal(u.keys[len(u.keys)-len(keys):], keys) {
				in = append(in, u)
			}
		}
		if in != nil {
			break
		}
	}
	return in
}

// keyOf has the keys that messages of compose-go without a place are about.
var keyOf = map[*regexp.Regexp]string{
	regexp.MustCompile(`invalid spec: .*empty section|invalid empty volume spec`): "volumes",
	regexp.MustCompile(`no port specified`):                                       "ports",
}

// withUnset adds to each line of an error the variables that are not set in the value that it is about.
func (l *loading) withUnset(text string) string {
	var all []Unset
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, OnlyNamed) {
			continue
		}
		about := func([]string) bool { return false }
		if at := keyPath.FindString(line); at != "" {
			keys := strings.FieldsFunc(at, func(r rune) bool { return strings.ContainsRune(".[]", r) })
			about = func(used []string) bool {
				return len(keys) > 2 && len(used) >= 3 && slices.Equal(used[:3], keys[:3])
			}
		}
		for message, key := range keyOf {
			if message.MatchString(line) {
				about = func(used []string) bool { return slices.Contains(used, key) }
			}
		}
		if all == nil {
			all = l.findUnset()
		}
		if uses := slices.DeleteFunc(slices.Clone(all), func(u Unset) bool { return !about(u.keys) }); len(uses) > 0 {
			lines[i] += ": " + notSet(uses)
			if !strings.Contains(line, uses[0].At) {
				lines[i] += " (" + uses[0].At + ")"
			}
		}
	}
	return strings.Join(lines, "\n")
}

// notSet names the variables of uses, each once.
func notSet(uses []Unset) string {
	var names []string
	for _, u := range uses {
		if !slices.Contains(names, u.Name) {
			names = append(names, u.Name)
		}
	}
	noun, verb := "the variable", "is"
	if len(names) > 1 {
		noun, verb = "the variables", "are"
	}
	return fmt.Sprintf("%s %s %s not set; %s", noun, strings.Join(names, ", "), verb, OnlyNamed)
}
