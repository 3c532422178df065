package strict

import (
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Form is what a value must look like beyond its type. The decoder and the JSON Schemas are both made
// of these, by the names in the fields' form tags.
type Form struct {
	Wanted  string               // for messages
	Choices []string             // the texts there are; nil takes others
	Pattern *regexp.Regexp       // what a text must match, in the syntax that Go and ECMAScript share; nil takes any
	Parse   func(*yaml.Node) any // makes the value of a field that is no text; nil of what is none
	Schema  map[string]any       // what a JSON Schema says of the values that are no text
}

// Takes says whether the form takes a text.
func (f Form) Takes(text string) bool {
	if f.Choices != nil {
		return slices.Contains(f.Choices, text)
	}
	return f.Pattern == nil || f.Pattern.MatchString(text)
}

// What is what a message says was wanted.
func (f Form) What() string {
	switch {
	case f.Choices != nil:
		return Alternatives(f.Choices)
	case f.Wanted != "":
		return f.Wanted
	}
	return "text"
}

// IsText says whether a node is text. YAML 1.2 has no dates, so one is text.
func IsText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Tag == "!!timestamp")
}

// Integer is a whole number; ok is false where the node is none.
func Integer(n *yaml.Node) (i int64, ok bool) {
	return i, n.Kind == yaml.ScalarNode && n.Tag == "!!int" && n.Decode(&i) == nil
}
