// Package strict reads YAML documents into Go values, by the tags of their fields. It reports all problems at
// once, by line: unknown keys, duplicate keys, and values of another type or form. Its package schematest makes
// JSON Schemas of the same types.
package strict

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
)

// Problem is a problem in a document. It is a fumehood.ErrFile.
type Problem struct {
	File   string // as the caller named it
	Line   int    // starts at 1; 0 if unknown
	Path   string // path of keys, such as docker.ports.8080 or setup.commands[2]; empty for the whole document
	Wanted string
	Found  string // never the value of a variable
	Hint   string // advice; empty if there is none

	more  int   // number of other problems of the same kind
	lines []int // lines of the first maxLines of them
}

// maxLines is the number of lines that a problem lists for others of the same kind.
const maxLines = 10

// count records another problem of the same kind.
func (p *Problem) count(line int) {
	p.more++
	if len(p.lines) < maxLines && line > 0 {
		p.lines = append(p.lines, line)
	}
}

// Error returns the problem as file:line: path: what was wanted, what was found, and the lines of others of its kind. It
// is always one line.
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
	if p.more > 0 {
		fmt.Fprintf(&b, "; and %d more like it", p.more)
	}
	for i, line := range p.lines {
		b.WriteString(map[bool]string{true: " in line ", false: ", "}[i == 0] + strconv.Itoa(line))
	}
	if n := len(p.lines); n > 0 && n < p.more {
		b.WriteString(", ...")
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, b.String())
}

// Unwrap returns the class.
func (p *Problem) Unwrap() error { return fumehood.ErrFile }

// Nothing is the text for a missing value in messages.
const Nothing = "nothing"

// maxQuote is the number of bytes of a text that a message shows.
const maxQuote = 60

// DescribeValue returns the description of a value in messages.
func DescribeValue(n *yaml.Node) string {
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

// kinds are the names, by tag, of scalars whose value must not be shown.
var kinds = map[string]string{"!!bool": "true or false", "!!int": "a number", "!!float": "a number", "!!str": "text", "!!timestamp": "text"}

// kind is like DescribeValue, for values that must not be shown.
func kind(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return DescribeValue(n)
	}
	return cmp.Or(kinds[n.Tag], "a value with the tag "+Short(n.Tag))
}

// Short returns s, shortened if it is too long for a message.
func Short(s string) string {
	if len(s) > maxQuote {
		return strings.ToValidUTF8(s[:maxQuote], "") + "..."
	}
	return s
}

// nearest returns the known word that word is most likely a typo of, or "" if none is similar.
func nearest(word string, known []string) string {
	if len(word) > maxQuote {
		return ""
	}
	best, least := "", 3 // at most two typos; no key is shorter than that
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns how many bytes must be inserted, removed or replaced to make a text another one (Levenshtein's distance).
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from the first i bytes of a to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0]++
		for j := range len(b) {
			replace := last
			if a[i] != b[j] {
				replace++
			}
			last, row[j+1] = row[j+1], min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Alternatives returns "a, b or c", for two words or more.
func Alternatives(words []string) string {
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
