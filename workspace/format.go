package workspace

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Format is what is in an input file.
type Format string

// The formats, with the Go values that they stand for.
const (
	Text   Format = "text"   // string or []byte that is UTF-8
	Binary Format = "binary" // []byte or string
	JSON   Format = "json"   // as encoding/json has it
	JSONL  Format = "jsonl"  // a slice, each element as encoding/json has it, one a line
	CSV    Format = "csv"    // [][]string
	TSV    Format = "tsv"    // [][]string, with tabs between
	YAML   Format = "yaml"   // as go.yaml.in/yaml/v3 has it
)

// extensions tell formats; every other is Binary.
var extensions = map[string]Format{
	".txt": Text, ".md": Text, ".json": JSON, ".jsonl": JSONL, ".ndjson": JSONL, ".csv": CSV, ".tsv": TSV, ".yaml": YAML, ".yml": YAML,
}

// compressions tell by the end of a name how an input file is compressed.
var compressions = map[string]Compression{".gz": Gzip, ".bz2": Bzip2, ".xz": XZ, ".zst": Zstd}

// formatOf tells format and compression by a file's name: "data.csv.gz".
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

// marshal writes a value in a format.
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
		rows, ok := value.([][]string)
		if !ok {
			return nil, fmt.Errorf("%s is written from a [][]string, not from a %T", f, value)
		}
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		if f == TSV {
			w.Comma = '\t'
		}
		err := w.WriteAll(rows)
		return b.Bytes(), err
	case YAML:
		return yaml.Marshal(value)
	}
	return nil, unknownFormat(f)
}

func unknownFormat(f Format) error {
	return fmt.Errorf("there is no format %q, only text, binary, json, jsonl, csv, tsv and yaml", f)
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

// unmarshal reads data of a format into what a pointer points to.
func unmarshal(f Format, data []byte, into any) error {
	switch f {
	case Text, Binary:
		if f == Text && !utf8.Valid(data) {
			return errors.New("the text is not UTF-8")
		}
		switch v := into.(type) {
		case *string:
			*v = string(data)
		case *[]byte:
			*v = data
		case *any:
			if *v = data; f == Text {
				*v = string(data)
			}
		default:
			return fmt.Errorf("text and bytes are read into a *string or a *[]byte, not into a %T", into)
		}
		return nil
	case JSON:
		return json.Unmarshal(data, into)
	case JSONL:
		list, err := linesToList(data)
		if err != nil {
			return err
		}
		return json.Unmarshal(list, into)
	case CSV, TSV:
		return unmarshalRows(f, data, into)
	case YAML:
		return yaml.Unmarshal(data, into)
	}
	return unknownFormat(f)
}

// linesToList makes one JSON array of many lines. Empty lines are passed over.
func linesToList(data []byte) ([]byte, error) {
	b := []byte{'['}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if !json.Valid(line) {
			return nil, fmt.Errorf("line %d is no JSON", n)
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, line...)
	}
	return append(b, ']'), nil
}

func unmarshalRows(f Format, data []byte, into any) error {
	r := csv.NewReader(bytes.NewReader(data))
	if f == TSV {
		r.Comma = '\t'
	}
	r.FieldsPerRecord = -1 // rows may differ in length
	rows, err := r.ReadAll()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch v := into.(type) {
	case *[][]string:
		*v = rows
	case *any:
		*v = rows
	default:
		return fmt.Errorf("%s is read into a *[][]string, not into a %T", f, into)
	}
	return nil
}
