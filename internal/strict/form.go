package strict

import (
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Form is the form that a value must have in addition to its type. Decoder and JSON Schemas both use these forms,
// by the names in the fields' form tags.
type Form struct {
	Wanted  string               // for messages
	Choices []string             // the allowed texts; nil allows others
	Pattern *regexp.Regexp       // pattern for texts, in the syntax that Go and ECMAScript share; nil allows any text
	Valid   func(string) bool    // checks texts beyond the pattern; a schema does not express it; nil allows any text
	Parse   func(*yaml.Node) any // parses the value of a field that is not text; returns nil for a wrong value
	Schema  map[string]any       // the JSON Schema of values that are not text
}

// Takes reports whether the form accepts a text.
func (f Form) Takes(text string) bool {
	if f.Choices != nil {
		return slices.Contains(f.Choices, text)
	}
	return (f.Pattern == nil || f.Pattern.MatchString(text)) && (f.Valid == nil || f.Valid(text))
}

// What returns the description of the form in messages.
func (f Form) What() string {
	switch {
	case f.Choices != nil:
		return Alternatives(f.Choices)
	case f.Wanted != "":
		return f.Wanted
	}
	return "text"
}

// IsText reports whether a node is text. YAML 1.2 has no dates, so a date is text.
func IsText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.Tag == "!!str" || n.Tag == "!!timestamp")
}

// Integer returns the integer value of a node; ok is false if the node is not an integer.
func Integer(n *yaml.Node) (i int64, ok bool) {
	return i, n.Kind == yaml.ScalarNode && n.Tag == "!!int" && n.Decode(&i) == nil
}
