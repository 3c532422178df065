// Package schematest makes JSON Schemas of the types that package strict reads, for the tests that write them and hold
// them against what is read.
package schematest

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/docker/go-units"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/strict"
)

// Schema is a JSON Schema or a part of one. Its keys come out sorted.
type Schema = map[string]any

// Check checks that a file holds the schema, and writes it first where update says so.
func Check(t *testing.T, file string, s Schema, update bool) {
	t.Helper()
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	if update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what the types say (%v): run `go generate` in its folder and commit the result", file, err)
	}
}

// Compile reads the schema in a file, whose $id is id.
func Compile(t *testing.T, file, id string) *jsonschema.Schema {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	doc, err := jsonschema.UnmarshalJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(id, doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile(id)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// Maker makes schemas of types.
type Maker struct {
	T     *testing.T
	Docs  map[string]string // the doc comments, by TYPE.FIELD: see Docs
	Forms map[string]strict.Form
	// Types have schemas of their own.
	Types map[reflect.Type]func(m Maker) Schema
	// Defaults are what structs behind pointers, and in lists and mappings, have where nothing is said.
	Defaults map[reflect.Type]any
}

// Object is the schema of a struct; the fields of defaults that are not zero are its defaults.
func (m Maker) Object(t reflect.Type, defaults reflect.Value) Schema {
	properties, required := Schema{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		switch key {
		case "", "-":
			continue
		case strict.Inline:
			inner := m.Object(f.Type, defaults.Field(i))
			maps.Copy(properties, inner["properties"].(Schema))
			if more, ok := inner["required"].([]string); ok {
				required = append(required, more...)
			}
			continue
		}
		s := m.value(f, defaults.Field(i))
		s["description"] = m.Docs[t.Name()+"."+f.Name]
		if s["description"] == "" {
			m.T.Errorf("%s.%s has no doc comment", t.Name(), f.Name)
		}
		if f.Tag.Get("required") != "" {
			required = append(required, key)
		} else if what, ok := s["type"]; ok {
			s["type"] = append(what.([]string), "null")
		}
		if choices, ok := s["enum"].([]any); ok && f.Tag.Get("required") == "" {
			s["enum"] = append(choices, nil)
		}
		properties[key] = s
	}
	s := Schema{"type": []string{"object"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func (m Maker) value(f reflect.StructField, standard reflect.Value) Schema {
	t, formName := f.Type, f.Tag.Get("form")
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		if standard.IsNil() {
			standard = reflect.Zero(t)
		} else {
			standard = standard.Elem()
		}
	}
	return m.schema(t, formName, standard)
}

// schema is that of a type behind no pointer.
func (m Maker) schema(t reflect.Type, formName string, standard reflect.Value) Schema {
	if of := m.Types[t]; of != nil {
		return of(m)
	}
	var s Schema
	switch t {
	case reflect.TypeFor[map[string]string]():
		keys := Schema{"type": []string{"string"}, "pattern": "^[^=]+$"}
		if m.Forms[formName].Pattern != nil {
			keys = m.Text(formName)
		}
		return Schema{"type": []string{"object"}, "propertyNames": keys, "additionalProperties": Schema{"type": "string"}}
	case reflect.TypeFor[[]string]():
		return Schema{"type": []string{"array"}, "items": Schema{"type": "string"}}
	case reflect.TypeFor[string]():
		s = m.Text(formName)
	case reflect.TypeFor[bool]():
		s = Schema{"type": []string{"boolean"}}
	default:
		switch t.Kind() {
		case reflect.Struct:
			return m.Object(t, m.defaults(t, standard))
		case reflect.Slice:
			return Schema{"type": []string{"array"}, "items": m.inside(t)}
		case reflect.Map:
			of := m.inside(t)
			of["type"] = []string{"object", "null"}
			return Schema{"type": []string{"object"}, "additionalProperties": of}
		case reflect.String:
			return m.Text(formName)
		case reflect.Int:
			s = Schema{"type": []string{"integer"}, "minimum": 1, "maximum": math.MaxInt32}
			if !standard.IsZero() {
				s["default"] = standard.Interface()
			}
			return s
		}
		if formName == "tolerance" {
			return Schema{"type": []string{"number"}, "minimum": 0}
		}
		s = m.Text(formName)
		s["not"] = Schema{"type": "string", "pattern": "^[0.][^1-9]*$"} // zero
		switch formName {
		case "size", "bytes":
			s["type"], s["minimum"] = []string{"string", "integer"}, 1
		case "count":
			s["type"], s["minimum"] = []string{"string", "integer"}, 1
		case "cores":
			s["type"], s["exclusiveMinimum"] = []string{"string", "number"}, 0
		}
	}
	if !standard.IsZero() {
		s["default"] = written(standard.Interface(), formName)
	}
	return s
}

// inside is the schema of what is in a list or a mapping.
func (m Maker) inside(t reflect.Type) Schema {
	if t = t.Elem(); t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return m.schema(t, "", reflect.Zero(t))
}

// defaults are those of a struct.
func (m Maker) defaults(t reflect.Type, standard reflect.Value) reflect.Value {
	if d, ok := m.Defaults[t]; ok {
		return reflect.ValueOf(d)
	}
	return standard
}

// Text is the schema of a text of that form.
func (m Maker) Text(formName string) Schema {
	s, f := Schema{"type": []string{"string"}}, m.Forms[formName]
	if f.Pattern != nil {
		s["pattern"] = f.Pattern.String()
	}
	if f.Choices != nil {
		var choices []any
		for _, c := range f.Choices {
			choices = append(choices, c)
		}
		s["enum"] = choices
	}
	return s
}

// written is how a spec has a default.
func written(v any, formName string) any {
	switch x := v.(type) {
	case time.Duration:
		return strings.TrimSuffix(x.String(), "0s")
	case int64:
		if formName == "size" {
			return strings.ReplaceAll(units.BytesSize(float64(x)), " ", "")
		}
	case float64:
		if x == fumehood.NoLimit {
			return "none"
		}
	}
	return v
}

// Docs are the doc comments of the fields of the structs in the files, with the keys' names for the
// fields' own.
func Docs(t *testing.T, files ...string) map[string]string {
	all := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			typ, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := typ.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					if f.Tag == nil || f.Doc == nil || len(f.Names) == 0 {
						continue
					}
					key := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml")
					doc := strings.Join(strings.Fields(f.Doc.Text()), " ")
					all[typ.Name.Name+"."+f.Names[0].Name] = key + strings.TrimPrefix(doc, f.Names[0].Name)
				}
			}
			return true
		})
	}
	return all
}
