package workspace

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Format is the format in which a value is written to an input file.
type Format string

// The formats, with the Go values that they accept.
const (
	Text   Format = "text"   // string or []byte, which must be UTF-8
	Binary Format = "binary" // []byte or string
	JSON   Format = "json"   // as encoding/json encodes it
	JSONL  Format = "jsonl"  // a slice; each element as JSON on its own line
	CSV    Format = "csv"    // [][]string, or a slice of maps with string keys: see below
	TSV    Format = "tsv"    // as CSV, separated by tabs
	YAML   Format = "yaml"   // as go.yaml.in/yaml/v3 encodes it
)

// In CSV and TSV, a slice of maps becomes a header with all keys, sorted, and one row for each map. A missing key and
// nil are an empty cell. Other values are texts, numbers and truth values, as encoding/json encodes them.

// extensions maps file extensions to formats. Every other extension is Binary.
var extensions = map[string]Format{
	".txt": Text, ".md": Text, ".json": JSON, ".jsonl": JSONL, ".ndjson": JSONL, ".csv": CSV, ".tsv": TSV, ".yaml": YAML, ".yml": YAML,
}

// compressions maps the last extension of an input file to its compression.
var compressions = map[string]Compression{".gz": Gzip, ".bz2": Bzip2, ".xz": XZ, ".zst": Zstd}

// formatOf returns the format and compression for a file name such as "data.csv.gz".
func formatOf(name string) (Format, Compression) {
	ext := strings.ToLower(path.Ext(name))
	c, ok := compressions[ext]
	if ok {
		ext = strings.ToLower(path.Ext(name[:len(name)-len(ext)]))
	} else {
		c = None
	}
	if f, ok := extensions[ext]; ok {
		return f, c
	}
	return Binary, c
}

// marshal encodes a value in a format.
func marshal(f Format, value any) ([]byte, error) {
	switch f {
	case Text, Binary:
		data, err := raw(value)
		if err == nil && f == Text && !utf8.Valid(data) {
			err = errors.New("the text is not UTF-8")
		}
		return data, err
	case JSON:
		return marshalJSON(value, "  ")
	case JSONL:
		return marshalLines(value)
	case CSV, TSV:
		rows, err := table(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		if f == TSV {
			w.Comma = '\t'
		}
		err = w.WriteAll(rows)
		return b.Bytes(), err
	case YAML:
		return yaml.Marshal(value)
	}
	return nil, fmt.Errorf("unknown format %q: use text, binary, json, jsonl, csv, tsv or yaml", f)
}

func raw(value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	}
	return nil, fmt.Errorf("text and bytes are written from a string or a []byte, not from a %T", value)
}

func marshalJSON(value any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(value)
	return b.Bytes(), err
}

func marshalLines(value any) ([]byte, error) {
	list := reflect.ValueOf(value)
	if kind := list.Kind(); kind != reflect.Slice && kind != reflect.Array {
		return nil, fmt.Errorf("jsonl is written from a slice, not from a %T", value)
	}
	var b bytes.Buffer
	for i := range list.Len() {
		line, err := marshalJSON(list.Index(i).Interface(), "")
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		b.Write(line)
	}
	return b.Bytes(), nil
}
