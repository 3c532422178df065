package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

var (
	// yamlError matches the YAML library's syntax errors.
	yamlError = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)`)
	// fromZero matches those of its messages that count lines from 0, and leave out line 0.
	fromZero = regexp.MustCompile(`^did not find expected (node content|key|'-' indicator|',' or|<)`)
)

// Document reads text, which must be one YAML document, into a struct. Noun is the document's name in messages.
// It reports whether there was a document to read. A text of more than most bytes is a problem; most is a whole
// number of MiB.
func (d *Decoder) Document(text []byte, most int, noun string, into any) bool {
	top := d.Top(text, most, noun)
	if top == nil {
		return false
	}
	d.Node(top, into)
	return true
}

// Node reads a mapping into a struct.
func (d *Decoder) Node(n *yaml.Node, into any) {
	if d.Lines == nil {
		d.Lines = map[string]int{}
	}
	d.Lines[""] = n.Line
	d.Value(n, "", reflect.ValueOf(into).Elem(), Form{})
}

// Top returns the value of the one document in text. If there is none, it records a problem and returns nil.
func (d *Decoder) Top(text []byte, most int, noun string) *yaml.Node {
	if len(text) > most {
		d.Problem(0, "", fmt.Sprintf("at most %dMiB", most>>20), "more", "")
		return nil
	}
	var doc, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&doc)
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			d.Problem(second.Line, "", "one document", "another", "")
		}
	} else if errors.Is(err, io.EOF) {
		d.Problem(1, "", noun, Nothing, "")
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		line, says := 0, err.Error()
		if m := yamlError.FindStringSubmatch(says); m != nil {
			line, _ = strconv.Atoi(m[1]) // 0 if missing
			if says = m[2]; fromZero.MatchString(says) {
				line++
			}
		}
		d.Problem(line, "", "YAML", "a syntax error: "+says, "")
		return nil
	}
	top := Target(doc.Content[0])
	if isNull(top) {
		d.Problem(top.Line, "", noun, Nothing, "")
		return nil
	}
	return top
}

// Err returns the joined problems, ordered by line, or nil if there are none. Problems beyond the first
// MaxProblems are only counted.
func (d *Decoder) Err() error {
	if len(d.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.problems, func(a, b *Problem) int { return a.Line - b.Line })
	errs := make([]error, len(d.problems), len(d.problems)+1)
	for i, p := range d.problems {
		errs[i] = p
	}
	switch {
	case d.stopped:
		errs = append(errs, fmt.Errorf("%s: the rest was not read", d.File))
	case d.more > 0:
		errs = append(errs, fmt.Errorf("%s: %d more problems", d.File, d.more))
	}
	return errors.Join(errs...)
}
