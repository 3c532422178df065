package cli

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
)

// outputJSON is an output in a JSON object. Its contents may be large, and are written by writeJSON without being held once
// more in another form.
type outputJSON struct {
	Text      string `json:"text"`             // until it is written, a mark in its place
	Base64    string `json:"base64,omitempty"` // the bytes, where they are not UTF-8; likewise
	Bytes     int64  `json:"bytes"`            // how many the program wrote
	Truncated bool   `json:"truncated"`        // the beginning is left out

	of fumehood.Output
}

// holdingOutputs is GOGC of a command that holds outputs for a JSON object: garbage of their size is no little thing.
const holdingOutputs = 25

func outputOf(o fumehood.Output) *outputJSON {
	out := &outputJSON{Text: rand.Text(), Bytes: o.Total, Truncated: o.Truncated(), of: o}
	if !utf8.Valid(o.Bytes) {
		out.Base64 = rand.Text()
	}
	return out
}

// writeJSON writes an object, indented, in which the outputs come in this order; nil ones do not.
func writeJSON(w io.Writer, v any, outputs ...*outputJSON) error {
	rest, err := encode(v, "  ")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(forPeople(w)) // which ends with a newline, so that it leaves no part of a character
	fill := func(mark string, write func(io.Writer, []byte) error, content []byte) error {
		before, after, ok := bytes.Cut(rest, []byte(`"`+mark+`"`))
		if !ok {
			return fmt.Errorf("an output has no place in the JSON object")
		}
		rest = after
		_, _ = out.Write(append(before, '"')) // the error stays, for Flush
		if err := write(out, content); err != nil {
			return err
		}
		return out.WriteByte('"')
	}
	for _, o := range outputs {
		if o == nil {
			continue
		}
		if err := fill(o.Text, writeText, o.of.Whole()); err != nil {
			return err
		}
		if o.Base64 == "" {
			continue
		}
		if err := fill(o.Base64, writeBase64, o.of.Bytes); err != nil {
			return err
		}
	}
	_, _ = out.Write(rest)
	return out.Flush()
}

// encode returns an object as JSON, and a newline.
func encode(v any, indent string) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return text.Bytes(), err
}

func writeBase64(w io.Writer, content []byte) error {
	enc := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := enc.Write(content); err != nil {
		return err
	}
	return enc.Close()
}

// textPart is how many bytes of a text writeText encodes at a time, at most.
const textPart = 32 << 10

// writeText writes what package json would of a text, without its quotes. Each run of invalid bytes becomes one U+FFFD.
func writeText(w io.Writer, content []byte) error {
	for len(content) > 0 {
		n := wholeRunes(content, textPart)
		text, err := encode(strings.ToValidUTF8(string(content[:n]), "\ufffd"), "")
		if err == nil {
			_, err = w.Write(text[1 : len(text)-len("\"\n")])
		}
		if err != nil {
			return err
		}
		if isInvalid(utf8.DecodeLastRune(content[:n])) { // its U+FFFD stands for the whole run
			for isInvalid(utf8.DecodeRune(content[n:])) {
				n++
			}
		}
		content = content[n:]
	}
	return nil
}

// isInvalid reports whether a decoded character is a byte that is not UTF-8.
func isInvalid(r rune, size int) bool { return r == utf8.RuneError && size == 1 }

// wholeRunes returns how many bytes of content, at most limit, can be cut off without cutting a character.
func wholeRunes(content []byte, limit int) int {
	if len(content) <= limit {
		return len(content)
	}
	for n := limit - 1; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(content[n]) {
			if !utf8.FullRune(content[n:limit]) {
				return n
			}
			break
		}
	}
	return limit
}
