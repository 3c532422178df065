// Package strict reads YAML documents into Go values, by the tags of their fields, and says at once all that is wrong, by
// line: keys that are not known, keys twice, values of another type or form. JSON Schemas of the same types are made by
// its package schematest.
package strict

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"

	"github.com/agext/levenshtein"
	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
)

// Problem is one thing that is wrong with a document. It is a fumehood.ErrConfig.
type Problem struct {
	File   string // as the caller named it
	Line   int    // from 1; 0 where it is not known
	Path   string // the keys that lead to it: docker.ports.8080, setup.commands[2]; empty for the whole
	Wanted string
	Found  string // never the value of a variable
	Hint   string // what to do about it; empty where we know nothing
}

// Error is the problem as file:line: path: what was wanted, what was found. It is one line, whatever the
// file holds.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File + ":")
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:", p.Line)
	}
	if p.Path != "" {
		b.WriteString(" " + p.Path + ":")
	}
	fmt.Fprintf(&b, " wanted %s, found %s", p.Wanted, p.Found)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, b.String())
}

// Unwrap gives the class.
func (p *Problem) Unwrap() error { return fumehood.ErrConfig }

// Nothing is what a message says was found where nothing was.
const Nothing = "nothing"

// maxQuote is how many bytes of a text a message shows.
const maxQuote = 60

// Found says what a message says was found.
func Found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch {
	case isNull(n):
		return Nothing
	case IsText(n):
		return fmt.Sprintf("%q", Short(n.Value))
	}
	return Short(n.Value)
}

// kinds are what scalars are called that must not be shown, by their tags.
var kinds = map[string]string{"!!bool": "true or false", "!!int": "a number", "!!float": "a number", "!!str": "text", "!!timestamp": "text"}

// kind is Found for what must not be shown.
func kind(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return Found(n)
	}
	return cmp.Or(kinds[n.Tag], "a value with the tag "+Short(n.Tag))
}

// Short is s, cut where it is too long for a message.
func Short(s string) string {
	if len(s) > maxQuote {
		return strings.ToValidUTF8(s[:maxQuote], "") + "..."
	}
	return s
}

// nearest is the one of known that word is most likely a slip for; "" where none is near.
func nearest(word string, known []string) string {
	if len(word) > maxQuote {
		return ""
	}
	best, least := "", 3 // at most two slips; no key is shorter than that
	for _, k := range known {
		if d := levenshtein.Distance(word, k, nil); d < least {
			best, least = k, d
		}
	}
	return best
}

// Alternatives is "a, b or c", of two words or more.
func Alternatives(words []string) string {
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
