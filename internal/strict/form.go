package strict

import (
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Form is what a value must look like beyond its type. The decoder and the JSON Schemas are both made
// of these, by the names in the fields' form tags.
type Form struct {
	Wanted  string           // for messages
	Choices []string         // the texts there are; nil takes others
	Pattern *regexp.Regexp   // what a text must match, in the syntax that Go and ECMAScript share; nil takes any
	Parse   func(Scalar) any // makes the value of a field that is no text; nil of what is none
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

// Scalar is a plain value of a document.
type Scalar struct{ *yaml.Node }

// IsText says whether the value is text. YAML 1.2 has no dates, so one is text.
func (s Scalar) IsText() bool {
	return s.Kind == yaml.ScalarNode && (s.Tag == "!!str" || s.Tag == "!!timestamp")
}

// Integer is a whole number; ok is false where the value is none.
func (s Scalar) Integer() (n int64, ok bool) {
	return n, s.Kind == yaml.ScalarNode && s.Tag == "!!int" && s.Decode(&n) == nil
}
