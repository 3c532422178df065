package taskfile

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood/internal/jsontext"
	"github.com/fumehood/fumehood/internal/strict"
)

// byteOrderMark is written by some programs at the beginning of a file.
var byteOrderMark = []byte("\ufeff")

// rowsOfJSON reads lines of JSON, and skips empty lines.
func rowsOfJSON(d *strict.Decoder, text []byte) iter.Seq[*yaml.Node] {
	return func(yield func(*yaml.Node) bool) {
		line := 0
		for row := range bytes.Lines(bytes.TrimPrefix(text, byteOrderMark)) {
			line++
			if len(bytes.TrimSpace(row)) == 0 {
				continue
			}
			if len(row) > maxTask {
				d.Problem(line, "", "a line of at most 16MiB", "more", "")
				continue
			}
			n, err := nodeOfJSON(row, line)
			if err != nil {
				d.Problem(line, "", "a line of JSON", err.Error(), "")
				if d.Stop() {
					return
				}
				continue
			}
			if !yield(n) {
				return
			}
		}
	}
}

// nodeOfJSON reads one JSON value as a YAML node.
func nodeOfJSON(text []byte, line int) (*yaml.Node, error) {
	if err := jsontext.Check(text); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	n, err := nextNode(d, line, 0)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return n, nil
		}
		err = errors.New("more data after the first value")
	}
	return nil, err
}

// deepest is the maximum number of nested levels in JSON; a sample has a few.
const deepest = 1000

// nextNode reads the next value.
func nextNode(d *json.Decoder, line, depth int) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > deepest {
		return nil, fmt.Errorf("more than %d levels", deepest)
	}
	scalar := func(tag, text string) (*yaml.Node, error) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text, Line: line}, nil
	}
	switch v := token.(type) {
	case string:
		return scalar("!!str", v)
	case bool:
		return scalar("!!bool", strconv.FormatBool(v))
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return scalar("!!float", v.String())
		}
		return scalar("!!int", v.String())
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode, Line: line}
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		for d.More() {
			item, err := nextNode(d, line, depth+1) // in an object, keys and values alternate
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		_, err := d.Token()
		return n, err
	}
	return scalar("!!null", "null")
}

// column is a column of a table.
type column struct {
	name string
	keys []string
	typ  reflect.Type
}

// rowsOfTable reads a table with a header. A column name is a key, with points between nested keys. A cell of a
// text key is text; other cells are YAML. Empty cells are absent.
func rowsOfTable(d *strict.Decoder, text []byte, comma rune) iter.Seq[*yaml.Node] {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, byteOrderMark)))
	r.Comma, r.LazyQuotes = comma, comma == '\t'
	fail := func(err error) {
		var at *csv.ParseError
		if errors.As(err, &at) {
			d.Problem(at.Line, "", "a row", at.Err.Error(), "")
			return
		}
		d.Problem(0, "", "a table", err.Error(), "")
	}
	return func(yield func(*yaml.Node) bool) {
		head, err := r.Read()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("nothing")
			}
			fail(err)
			return
		}
		columns := make([]column, len(head))
		for i, name := range head {
			name = strings.TrimSpace(name)
			keys, typ := columnOf(reflect.TypeFor[Sample](), name)
			columns[i] = column{name, keys, typ}
		}
		for {
			cells, err := r.Read()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				fail(err)
				return
			}
			line, _ := r.FieldPos(0)
			if !yield(rowOfCells(d, columns, cells, line)) {
				return
			}
		}
	}
}

// rowOfCells returns a row of a table.
func rowOfCells(d *strict.Decoder, columns []column, cells []string, line int) *yaml.Node {
	row := row{mappingNode(line), map[string]*yaml.Node{}}
	for i, cell := range cells {
		if cell == "" {
			continue
		}
		n, err := cellNode(columns[i].typ, cell, line)
		if err == nil && len(columns[i].keys) > 0 {
			err = row.put(columns[i].keys, n)
		}
		if err != nil {
			d.Problem(line, columns[i].name, "a value of this column", err.Error(), "")
		}
	}
	return row.Node
}

// cellNode returns the value of a cell of that type.
func cellNode(t reflect.Type, cell string, line int) (*yaml.Node, error) {
	texts := t == reflect.TypeFor[Args]() || t == reflect.TypeFor[[]string]()
	if t.Kind() == reflect.String || t == reflect.TypeFor[Content]() || texts && !strings.HasPrefix(cell, "[") {
		return textNode(cell, line), nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(cell), &doc); err != nil || len(doc.Content) != 1 {
		return nil, fmt.Errorf("invalid YAML: %q", strict.Short(cell))
	}
	var move func(n *yaml.Node)
	move = func(n *yaml.Node) {
		n.Line = line
		for _, c := range n.Content {
			move(c)
		}
	}
	move(doc.Content[0])
	return doc.Content[0], nil
}

// columnOf returns the keys that a column's name stands for, starting from type t, and the type of the value. An
// unknown name is split at its points; the decoder then reports it.
func columnOf(t reflect.Type, name string) ([]string, reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case name == "":
		return nil, t
	case t == reflect.TypeFor[map[string]string](), t == reflect.TypeFor[Files]():
		return []string{name}, t.Elem() // points belong to the key
	case t.Kind() != reflect.Struct:
		return strings.Split(name, "."), reflect.TypeFor[any]()
	}
	key, rest, _ := strings.Cut(name, ".")
	for _, f := range reflect.VisibleFields(t) {
		if f.Tag.Get("yaml") == key {
			keys, typ := columnOf(f.Type, rest)
			return append([]string{key}, keys...), typ
		}
	}
	return strings.Split(name, "."), reflect.TypeFor[any]()
}

// row is a mapping that is filled cell by cell.
type row struct {
	*yaml.Node
	at map[string]*yaml.Node // its nodes by the keys that lead there, each key after a NUL
}

// put adds a value below the keys that lead to it. The decoder reports keys that are also in the value of another
// cell.
func (r row) put(keys []string, value *yaml.Node) error {
	in, path := r.Node, ""
	for i, key := range keys {
		path += "\x00" + key
		last, inner := i == len(keys)-1, r.at[path]
		switch {
		case inner != nil && (last || inner.Kind != yaml.MappingNode):
			return fmt.Errorf("a second value for %q", key)
		case inner == nil:
			if inner = value; !last {
				inner = mappingNode(r.Line)
			}
			r.at[path] = inner
			in.Content = append(in.Content, textNode(key, r.Line), inner)
		}
		in = inner
	}
	return nil
}

func mappingNode(line int) *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Line: line} }
