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
	"unicode/utf8"
)

// parseJSON reads exactly one JSON value. It rejects objects with duplicate keys, because the standard does not
// define which of the two counts.
func parseJSON(text []byte) (any, error) {
	if !utf8.Valid(text) { // the decoder would convert it to U+FFFD
		return nil, errors.New("it is not JSON: it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the text ends before the value does")
		}
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is not JSON: there is more after the first value")
	}
	return v, nil
}

// deepest is the maximum number of nested levels of JSON.
const deepest = 1000

// readValue reads one value from its tokens.
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
		name, _ := key.(string) // the decoder accepts only strings
		if _, twice := object[name]; twice {
			return nil, fmt.Errorf("duplicate key %s", quote(name))
		}
		if object[name], err = readValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil { // the closing delimiter
		return nil, err
	}
	if open == '[' {
		return list, nil
	}
	return object, nil
}

// differAsJSON returns where a text differs from a JSON value, or "" if it does not.
func differAsJSON(got []byte, want json.RawMessage) string {
	w, err := parseJSON(want)
	if err != nil {
		return "cannot be compared with the expected value: " + err.Error()
	}
	g, err := parseJSON(got)
	if err != nil {
		return fmt.Sprintf("is %s: %v", quote(got), err)
	}
	if at, differ := differAt(g, w, "$"); differ {
		return fmt.Sprintf("is %s, and differs from the expected JSON at %s", quote(got), quote(at))
	}
	return ""
}

// differAt returns a place where two JSON values differ.
func differAt(got, want any, at string) (string, bool) {
	switch w := want.(type) {
	case json.Number:
		g, ok := got.(json.Number)
		return at, !ok || !sameNumber(g.String(), w.String())
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
