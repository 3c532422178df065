// Package schematest makes JSON Schemas of the types that package strict reads. Tests write the schemas and compare
// them with what is read.
package schematest

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
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

// Schema is a JSON Schema or a part of one. Its keys are encoded in sorted order.
type Schema = map[string]any

// Check checks that a file contains the schema. If update is set, it writes the file first.
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
		t.Errorf("%s does not match the types (%v): run `go generate` in its folder and commit the result", file, err)
	}
}

// Compile reads the schema in a file.
func Compile(t *testing.T, file string) *jsonschema.Schema {
	t.Helper()
	compiled, err := jsonschema.NewCompiler().Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// Maker makes schemas of types.
type Maker struct {
	T     *testing.T
	Docs  map[string]string // the doc comments: see Docs
	Forms map[string]strict.Form
	// Types have schemas of their own.
	Types map[reflect.Type]func(m Maker) Schema
	// Defaults are the default values of structs behind pointers, and in lists and mappings.
	Defaults map[reflect.Type]any
}

// Object returns the schema of a struct; the fields of defaults that are not zero are its defaults.
func (m Maker) Object(t reflect.Type, defaults reflect.Value) Schema {
	properties, required := Schema{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		key := strict.Key(f)
		if key == "" {
			continue
		}
		s := m.schema(f.Type, f.Tag.Get("form"), defaults.FieldByIndex(f.Index))
		owner := t
		for _, i := range f.Index[:len(f.Index)-1] {
			owner = owner.Field(i).Type
		}
		doc, ok := strings.CutPrefix(m.Docs[owner.Name()+"."+f.Name], f.Name)
		if s["description"] = key + doc; !ok {
			m.T.Errorf("%s.%s has no doc comment that begins with its name", owner.Name(), f.Name)
		}
		if f.Tag.Get("required") != "" {
			required = append(required, key)
		} else {
			if kind, ok := s["type"]; ok {
				s["type"] = append(kind.([]string), "null")
			}
			if choices, ok := s["enum"].([]any); ok {
				s["enum"] = append(choices, nil)
			}
		}
		properties[key] = s
	}
	s := Schema{"type": []string{"object"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// schema returns the schema of a value. Its default is standard, if that is not zero.
func (m Maker) schema(t reflect.Type, formName string, standard reflect.Value) Schema {
	if t.Kind() == reflect.Pointer {
		if t = t.Elem(); standard.IsNil() {
			standard = reflect.New(t)
		}
		standard = standard.Elem()
	}
	if schema := m.Types[t]; schema != nil {
		return schema(m)
	}
	switch t.Kind() {
	case reflect.Struct:
		if d, ok := m.Defaults[t]; ok {
			standard = reflect.ValueOf(d)
		}
		return m.Object(t, standard)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			items := m.Text(formName)
			items["type"] = "string"
			return Schema{"type": []string{"array"}, "items": items}
		}
		return Schema{"type": []string{"array"}, "items": m.schema(t.Elem(), "", reflect.Zero(t.Elem()))}
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			keys := Schema{"type": []string{"string"}, "pattern": "^[^=]+$"}
			if m.Forms[formName].Pattern != nil {
				keys = m.Text(formName)
			}
			return Schema{"type": []string{"object"}, "propertyNames": keys, "additionalProperties": Schema{"type": "string"}}
		}
		schema := m.schema(t.Elem(), "", reflect.Zero(t.Elem()))
		schema["type"] = []string{"object", "null"}
		return Schema{"type": []string{"object"}, "additionalProperties": schema}
	}
	s, f := m.Text(formName), m.Forms[formName]
	maps.Copy(s, f.Schema)
	switch {
	case t.Kind() == reflect.Bool:
		s["type"] = []string{"boolean"}
	case f.Parse != nil && f.Pattern != nil:
		s["not"] = Schema{"type": "string", "pattern": "^[0.][^1-9]*$"} // zero
	}
	if !standard.IsZero() {
		s["default"] = writtenForm(standard.Interface(), formName)
	}
	return s
}

// Text returns the schema of a text of that form.
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

// writtenForm returns a default in the form that a spec has.
func writtenForm(v any, formName string) any {
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

// Docs returns the doc comments of the fields of the structs in the files, by TYPE.FIELD.
func Docs(t *testing.T, files ...string) map[string]string {
	all := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			typ, _ := n.(*ast.TypeSpec)
			if typ == nil {
				return true
			}
			if s, ok := typ.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						all[typ.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
	return all
}
