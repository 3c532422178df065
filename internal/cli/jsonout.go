package cli

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
)

// outputJSON is a command's output in a JSON object. The contents may be large, so writeJSON writes them without
// holding an encoded copy in memory.
type outputJSON struct {
	Text      string `json:"text"`             // a random placeholder, which writeJSON replaces with the text
	Base64    string `json:"base64,omitempty"` // likewise for the bytes, if they are not UTF-8
	Bytes     int64  `json:"bytes"`            // number of bytes that the program wrote
	Truncated bool   `json:"truncated"`        // the beginning is missing

	of fumehood.Output
}

// holdingOutputs is the GOGC value of commands that hold outputs for a JSON object, since garbage of that size matters.
const holdingOutputs = 25

func outputOf(o fumehood.Output) *outputJSON {
	out := &outputJSON{Text: rand.Text(), Bytes: o.Total, Truncated: o.Truncated(), of: o}
	if !utf8.Valid(o.Bytes) {
		out.Base64 = rand.Text()
	}
	return out
}

// writeJSON writes v as indented JSON. outputs are the outputs that v contains, in the order of their fields; nil
// outputs are skipped.
func writeJSON(w io.Writer, v any, outputs ...*outputJSON) error {
	rest, err := encode(v, "  ")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(forPeople(w)) // need not be closed: JSON ends with a newline, so no partial character remains
	fill := func(mark string, write func(io.Writer, []byte) error, content []byte) error {
		before, after, ok := bytes.Cut(rest, []byte(`"`+mark+`"`))
		if !ok {
			return fmt.Errorf("an output has no place in the JSON object")
		}
		rest = after
		_, _ = out.Write(append(before, '"')) // Flush returns the error
		if err := write(out, content); err != nil {
			return err
		}
		return out.WriteByte('"')
	}
	for _, o := range outputs {
		if o == nil {
			continue
		}
		if err := fill(o.Text, jsontext.WriteText, o.of.Whole()); err != nil {
			return err
		}
		if o.Base64 == "" {
			continue
		}
		if err := fill(o.Base64, jsontext.WriteBase64, o.of.Bytes); err != nil {
			return err
		}
	}
	_, _ = out.Write(rest)
	return out.Flush()
}

// encode returns v as JSON with a newline at the end.
func encode(v any, indent string) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return text.Bytes(), err
}
