// Package jsontext has the JSON form of names, paths, arguments and variables of Linux, which may have any bytes.
// Package encoding/json would replace those that are not UTF-8 by U+FFFD.
package jsontext

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text is text that may have any bytes. In JSON it is a string if it is UTF-8, or else an object {"base64": "..."}.
type Text string

type object struct {
	Base64 *string `json:"base64"`
}

// MarshalJSON encodes the text.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return Marshal(string(t))
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(t))
	return json.Marshal(object{&encoded})
}

// Marshal returns the JSON of a value. An encoder escapes its texts for HTML as its other ones, or not.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Join returns the JSON of one object, which has the fields of all objects.
func Join(objects ...any) ([]byte, error) {
	joined := []byte{'{'}
	for _, o := range objects {
		text, err := Marshal(o)
		if err != nil {
			return nil, err
		}
		fields, ok := bytes.CutPrefix(text, []byte{'{'})
		if !ok {
			return nil, fmt.Errorf("a %T is no JSON object", o)
		}
		if len(joined) > 1 && len(fields) > 1 {
			joined = append(joined, ',')
		}
		joined = append(joined, fields[:len(fields)-1]...)
	}
	return append(joined, '}'), nil
}

// UnmarshalJSON decodes a string or an object with base64. "null" leaves the text unchanged.
func (t *Text) UnmarshalJSON(from []byte) error {
	if len(from) == 0 || from[0] != '{' {
		return json.Unmarshal(from, (*string)(t))
	}
	var o object
	d := json.NewDecoder(bytes.NewReader(from))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return err
	}
	if o.Base64 == nil {
		return errors.New("an object in the place of a text has no base64")
	}
	decoded, err := base64.StdEncoding.DecodeString(*o.Base64)
	if err != nil {
		return fmt.Errorf("base64 of a text: %w", err)
	}
	*t = Text(decoded)
	return nil
}

// Of returns texts.
func Of(all []string) []Text {
	if all == nil {
		return nil
	}
	texts := make([]Text, len(all))
	for i, s := range all {
		texts[i] = Text(s)
	}
	return texts
}

// Strings returns texts as strings.
func Strings(all []Text) []string {
	if all == nil {
		return nil
	}
	texts := make([]string, len(all))
	for i, t := range all {
		texts[i] = string(t)
	}
	return texts
}

// Escape returns a message that people read, with bytes that are not UTF-8 as \xNN.
func Escape(message string) string {
	if utf8.ValidString(message) {
		return message
	}
	var b strings.Builder
	for len(message) > 0 {
		r, size := utf8.DecodeRuneInString(message)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, message[0])
		} else {
			b.WriteRune(r)
		}
		message = message[size:]
	}
	return b.String()
}

// Check returns an error for JSON that encoding/json would alter: bytes that are not UTF-8, and surrogates without their
// other half, such as in "\ud800".
func Check(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New(`the JSON is not UTF-8: other bytes are written as {"base64": "..."}`)
	}
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 || i+1 >= len(data) {
			return nil
		}
		unit, rest := parseEscape(data[i:])
		low, after := parseEscape(rest)
		switch {
		case unit >= 0xD800 && unit < 0xDC00 && low >= 0xDC00 && low < 0xE000:
			rest = after
		case unit >= 0xD800 && unit < 0xE000:
			return fmt.Errorf(`the JSON has a surrogate without its other half: \u%04x`, unit)
		}
		data = rest
	}
}

// parseEscape returns the number of a \uNNNN at the beginning of data, or -1, and what follows the escape.
func parseEscape(data []byte) (unit int, rest []byte) {
	switch {
	case len(data) < 2 || data[0] != '\\':
		return -1, data
	case data[1] != 'u' || len(data) < 6:
		return -1, data[2:]
	}
	for _, c := range data[2:6] {
		digit, err := strconv.ParseUint(string(c), 16, 8)
		if err != nil {
			return -1, data[2:] // the decoder rejects it
		}
		unit = unit<<4 | int(digit)
	}
	return unit, data[6:]
}
