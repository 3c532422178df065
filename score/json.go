package score

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parseJSON reads exactly one JSON value. Of an object, no key may be there twice: which of two counts is nowhere said.
func parseJSON(text []byte) (any, error) {
	if !utf8.Valid(text) { // the decoder would take it for U+FFFD
		return nil, errors.New("it is no JSON: it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the text ends before the value does")
		}
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is no JSON: there is more behind the first value")
	}
	return v, nil
}

// deepest is how many levels of JSON are read.
const deepest = 1000

// readValue reads a value from its tokens.
func readValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth == deepest {
		return nil, fmt.Errorf("it has more than %d levels", deepest)
	}
	list, object := []any{}, map[string]any{}
	for d.More() {
		if open == '[' {
			v, err := readValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
			continue
		}
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // the decoder takes no other
		if _, twice := object[name]; twice {
			return nil, fmt.Errorf("the key %s is there twice", quote(name))
		}
		if object[name], err = readValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil { // the closing one
		return nil, err
	}
	if open == '[' {
		return list, nil
	}
	return object, nil
}

// differAsJSON says where a text differs from a JSON value, and nothing where it does not.
func differAsJSON(got []byte, want json.RawMessage) string {
	w, err := parseJSON(want)
	if err != nil {
		return "cannot be compared with what was expected: " + err.Error()
	}
	g, err := parseJSON(got)
	if err != nil {
		return fmt.Sprintf("is %s: %v", quote(got), err)
	}
	if at, differ := differAt(g, w, "$"); differ {
		return fmt.Sprintf("is %s, and is not the JSON that was expected, at %s", quote(got), quote(at))
	}
	return ""
}

// differAt finds a place where two JSON values differ.
func differAt(got, want any, at string) (string, bool) {
	switch w := want.(type) {
	case json.Number:
		g, ok := got.(json.Number)
		return at, !ok || canonical(g) != canonical(w)
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return at, true
		}
		for i := range w {
			if at, differ := differAt(g[i], w[i], at+"["+strconv.Itoa(i)+"]"); differ {
				return at, true
			}
		}
		return "", false
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			return at, true
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			v, there := g[key]
			if !there {
				return at + "." + key, true
			}
			if at, differ := differAt(v, w[key], at+"."+key); differ {
				return at, true
			}
		}
		return "", false
	}
	return at, got != want
}

// decimal is a number: its digits, without zeros at either end, times ten to the exponent.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// canonical is the same for all ways to write a number, however large: it is not computed.
func canonical(n json.Number) any {
	text, exponentText, _ := strings.Cut(strings.ToLower(n.String()), "e")
	var exponent int64
	if exponentText != "" {
		var err error
		if exponent, err = strconv.ParseInt(exponentText, 10, 32); err != nil {
			return n // so far off that it is compared as it is written
		}
	}
	text, negative := strings.CutPrefix(text, "-")
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent -= int64(len(fraction))
	short := strings.TrimRight(digits, "0")
	exponent += int64(len(digits) - len(short))
	if short == "" {
		return decimal{}
	}
	return decimal{negative, short, exponent}
}
