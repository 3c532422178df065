package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lazaret/lazaret"
)

const (
	schemaFile = "environment.schema.json"
	schemaID   = "https://raw.githubusercontent.com/lazaret/lazaret/main/spec/" + schemaFile
)

var updateSchema = flag.Bool("update-schema", false, "write "+schemaFile+" anew")

func TestTheSchemaIsWhatTheTypesSay(t *testing.T) {
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(environmentSchema(t)); err != nil {
		t.Fatal(err)
	}
	if *updateSchema {
		if err := os.WriteFile(schemaFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(schemaFile); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what the types say (%v): run `go generate ./spec` and commit the result", schemaFile, err)
	}
}

// schema is a JSON Schema or a part of one. Its keys come out sorted.
type schema = map[string]any

func environmentSchema(t *testing.T) schema {
	s := maker{t, docs(t, "environment.go", "decode.go")}.object(reflect.TypeFor[Environment](), reflect.ValueOf(Environment{}.WithDefaults()))
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = schemaID
	s["title"] = "Lazaret environment"
	// What decoder.check checks.
	has := func(key string, of ...schema) schema {
		value := schema{"not": schema{"type": "null"}}
		if len(of) > 0 {
			value = of[0]
		}
		return schema{"type": "object", "required": []string{key}, "properties": schema{key: value}}
	}
	isType := func(name string) schema { return has("type", schema{"const": name}) }
	null := func(key string) schema { return schema{"properties": schema{key: schema{"type": "null"}}} }
	s["allOf"] = []schema{
		{"if": isType(TypeDocker), "then": schema{"allOf": []schema{null("local"), {"anyOf": []schema{
			has("docker", has("image")),
			{"allOf": []schema{has("name"), has("docker", has("build"))}},
		}}}}},
		{"if": isType(TypeLocal), "then": null("docker")},
	}
	return s
}

// maker makes schemas of types. It holds the doc comments, by TYPE.FIELD.
type maker struct {
	t    *testing.T
	docs map[string]string
}

// object is the schema of a struct; the fields of defaults that are not zero are its defaults.
func (m maker) object(t reflect.Type, defaults reflect.Value) schema {
	properties, required := schema{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == "-" {
			continue
		}
		s := m.value(f, defaults.Field(i))
		s["description"] = m.docs[t.Name()+"."+f.Name]
		if s["description"] == "" {
			m.t.Errorf("%s.%s has no doc comment", t.Name(), f.Name)
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
	s := schema{"type": []string{"object"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func (m maker) value(f reflect.StructField, standard reflect.Value) schema {
	t, formName := f.Type, f.Tag.Get("form")
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		if standard.IsNil() {
			standard = reflect.Zero(t)
		} else {
			standard = standard.Elem()
		}
	}
	var s schema
	switch t {
	case reflect.TypeFor[Mounts]():
		long := m.object(reflect.TypeFor[mountTarget](), reflect.ValueOf(mountTarget{Mode: "ro"}))
		return schema{
			"type": []string{"object"}, "propertyNames": text("host path"),
			"additionalProperties": schema{"oneOf": []schema{text("target"), long}},
		}
	case reflect.TypeFor[Ports]():
		port := schema{"type": "integer", "minimum": 1, "maximum": 65535}
		return schema{
			"type": []string{"object"}, "propertyNames": text("host port"),
			"properties":           schema{"0": schema{"oneOf": []schema{port, {"type": "array", "items": port}}}},
			"additionalProperties": port,
		}
	case reflect.TypeFor[map[string]string]():
		return schema{"type": []string{"object"}, "propertyNames": text("variable"), "additionalProperties": schema{"type": "string"}}
	case reflect.TypeFor[[]string]():
		return schema{"type": []string{"array"}, "items": schema{"type": "string"}}
	case reflect.TypeFor[string]():
		s = text(formName)
	case reflect.TypeFor[bool]():
		s = schema{"type": []string{"boolean"}}
	default:
		if t.Kind() == reflect.Struct {
			defaults := standard
			if t == reflect.TypeFor[Docker]() {
				defaults = reflect.ValueOf(Docker{}.WithDefaults())
			}
			if t == reflect.TypeFor[Build]() {
				defaults = reflect.ValueOf(*Docker{Build: &Build{}}.WithDefaults().Build)
			}
			return m.object(t, defaults)
		}
		s = text(formName)
		s["not"] = schema{"type": "string", "pattern": "^[0.][^1-9]*$"} // zero
		switch formName {
		case "size":
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

// text is the schema of a text of that form.
func text(formName string) schema {
	s, f := schema{"type": []string{"string"}}, forms[formName]
	if f.pattern != nil {
		s["pattern"] = f.pattern.String()
	}
	if f.choices != nil {
		var choices []any
		for _, c := range f.choices {
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
			return FormatSize(x)
		}
	case float64:
		if x == lazaret.NoLimit {
			return "none"
		}
	}
	return v
}

// docs are the doc comments of the fields of the structs in the files, with the keys' names for the
// fields' own.
func docs(t *testing.T, files ...string) map[string]string {
	docs := map[string]string{}
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
					if f.Tag == nil || f.Doc == nil {
						continue
					}
					key := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml")
					doc := strings.Join(strings.Fields(f.Doc.Text()), " ")
					docs[typ.Name.Name+"."+f.Names[0].Name] = key + strings.TrimPrefix(doc, f.Names[0].Name)
				}
			}
			return true
		})
	}
	return docs
}
