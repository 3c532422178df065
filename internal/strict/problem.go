// Package strict reads YAML documents into Go values, by the tags of their fields, and says at once all that is wrong, by
// line: keys that are not known, keys twice, values of another type or form. JSON Schemas of the same types are made by
// its package schematest.
package strict

import (
	"fmt"
	"strings"
	"unicode"

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
	case Scalar{n}.IsText():
		return fmt.Sprintf("%q", Short(n.Value))
	}
	return Short(n.Value)
}

// kind is Found for what must not be shown.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		return Found(n)
	case n.Tag == "!!bool":
		return "true or false"
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "a number"
	case Scalar{n}.IsText():
		return "text"
	}
	return "a value with the tag " + Short(n.Tag)
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
	best, least := "", 3 // at most two slips; no key is shorter than that
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	if a == "" || b == "" || max(len(a), len(b)) > maxQuote {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Alternatives is "a, b or c", of two words or more.
func Alternatives(words []string) string {
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
