package taskfile

import (
	"bytes"
	"encoding/json"
	"flag"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood/internal/score"
	"github.com/fumehood/fumehood/internal/strict"
	"github.com/fumehood/fumehood/test/schematest"
)

const (
	schemaFile = "../../eval/task.schema.json"
	schemaID   = "https://raw.githubusercontent.com/fumehood/fumehood/main/eval/task.schema.json"
)

var updateSchema = flag.Bool("update-schema", false, "write "+schemaFile+" again")

type schema = schematest.Schema

func TestSchema_upToDate(t *testing.T) {
	defaults := &File{Epochs: DefaultEpochs, Defaults: Defaults{Timeout: DefaultTimeout}}
	code := schema{"type": "integer", "minimum": 0, "maximum": 255}
	s := schematest.Maker{
		T: t, Docs: schematest.Docs(t, "../../session/spec/environment.go", "../score/expect.go", "../score/artifact.go", "file.go", "content.go"), Forms: forms,
		Types: map[reflect.Type]func(schematest.Maker) schema{
			reflect.TypeFor[Args](): func(schematest.Maker) schema {
				return schema{
					"type": []string{"string", "array"}, "minLength": 1,
					"items": schema{"type": "string"}, "minItems": 1, "prefixItems": []schema{{"type": "string", "minLength": 1}},
				}
			},
			reflect.TypeFor[[]string](): func(schematest.Maker) schema {
				return schema{"type": []string{"string", "array"}, "items": schema{"type": "string"}}
			},
			reflect.TypeFor[[]int](): func(schematest.Maker) schema {
				return schema{"type": []string{"integer", "array"}, "minimum": 0, "maximum": 255, "items": code, "minItems": 1}
			},
			reflect.TypeFor[json.RawMessage](): func(schematest.Maker) schema { return schema{} },
			reflect.TypeFor[Content]():         contentSchema,
			reflect.TypeFor[Files](): func(m schematest.Maker) schema {
				return schema{"type": []string{"object"}, "propertyNames": m.Text("some"), "additionalProperties": contentSchema(m)}
			},
			reflect.TypeFor[score.Artifact](): func(m schematest.Maker) schema {
				s := m.Object(reflect.TypeFor[score.Artifact](), reflect.ValueOf(score.Artifact{}))
				s["type"], s["pattern"] = []string{"string", "object"}, forms["some"].Pattern.String()
				return s
			},
		},
		Defaults: map[reflect.Type]any{
			reflect.TypeFor[Grader](): Grader{
				Score: scoreJSON, Timeout: score.DefaultGraderTime, MaxSize: score.DefaultMaxBytes, MaxFiles: score.DefaultMaxFiles,
			},
		},
	}.Object(reflect.TypeFor[File](), reflect.ValueOf(defaults).Elem())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = schemaID
	s["title"] = "Fumehood task"
	schematest.Check(t, schemaFile, s, *updateSchema)
}

// contentSchema returns the schema of a text, or of a mapping with either text or file.
func contentSchema(m schematest.Maker) schema {
	s := m.Object(reflect.TypeFor[Content](), reflect.ValueOf(Content{}))
	s["type"] = []string{"string", "object"}
	one := func(key, other string) schema {
		return schema{"type": "object", "required": []string{key}, "properties": schema{key: schema{"type": "string"}, other: schema{"type": "null"}}}
	}
	s["oneOf"] = []schema{{"type": []string{"string", "null"}}, one("text", "file"), one("file", "text")}
	return s
}

func TestSchema_content(t *testing.T) {
	compiled := schematest.Compile(t, schemaFile)
	for text, valid := range map[string]bool{
		`"x"`: true, `""`: true, `{"text": "x"}`: true, `{"text": ""}`: true, `{"file": "x"}`: true, `{"text": "x", "file": null}`: true,
		`{"text": null, "file": "x"}`: true,
		`{}`:                          false, `{"text": null}`: false, `{"text": "x", "file": "y"}`: false, `{"file": ""}`: false, `{"text": 1}`: false,
		`{"txt": "x"}`: false, `1`: false, `[]`: false,
	} {
		for _, doc := range []string{`{"name": "t", "files": {"a": ` + text + `}}`, `{"name": "t", "stdin": ` + text + `}`, `{"name": "t", "setup": ` + text + `}`, `{"name": "t", "steps": [{"command": "x", "stdin": ` + text + `}]}`} {
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
			if err != nil {
				t.Fatal(err)
			}
			d := &strict.Decoder{File: "task.yaml", Forms: forms, Types: types}
			d.Document([]byte(doc), maxTask, "a task", &File{})
			if err := d.Err(); (err == nil) != valid {
				t.Errorf("%s: Read: %v", doc, err)
			}
			if err := compiled.Validate(v); (err == nil) != valid {
				t.Errorf("%s: schema: %v", doc, err)
			}
		}
	}
}

// The schema cannot express rules between the values of a task: these tasks are valid except for one value.
func TestSchema_everyKey(t *testing.T) {
	compiled := schematest.Compile(t, schemaFile)
	values := []any{
		nil, true, 0, 1, -1, 256, 1.5, "", "x", "/x", "a b", "\x01", "none", "json", "exited", "lost", "5s", "0s", "64MiB", "0",
		[]any{},
		[]any{"a"},
		[]any{1},
		[]any{256},
		[]any{""},
		[]any{nil},
		[]any{[]any{}},
		map[string]any{},
		map[string]any{"a": "b"},
		map[string]any{"a": 1},
		map[string]any{"a": nil},
		map[string]any{"": "x"},
		map[string]any{"a=b": "x"},
		map[string]any{"a": map[string]any{}},
		map[string]any{"path": "x"},
		[]any{map[string]any{"path": "x", "to": "y"}},
		[]any{map[string]any{"path": "x"}},
		[]any{map[string]any{"id": "z", "command": []any{"c"}}},
		[]any{map[string]any{"command": "c"}},
		map[string]any{"text": "1", "absolute": 0.5},
		map[string]any{"text": "", "absolute": 0.5},
		map[string]any{"text": "1", "relative": -1},
		map[string]any{"command": "c"},
		map[string]any{"a": map[string]any{"absent": true}},
		map[string]any{"a": map[string]any{"absent": 1}},
	}
	tried := 0
	agree := func(doc any) {
		tried++
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		d := &strict.Decoder{File: "task.yaml", Forms: forms, Types: types}
		d.Document(text, maxTask, "a task", &File{})
		err = d.Err()
		if schema := compiled.Validate(v); (schema == nil) != (err == nil) {
			t.Errorf("%s: schema: %v, Read: %v", text, schema, err)
		}
	}
	with := func(base map[string]any, key string, v any) map[string]any {
		out := map[string]any{}
		for k, v := range base {
			out[k] = v
		}
		out[key] = v
		return out
	}
	base := map[string]any{"name": "t"}
	for _, place := range []struct {
		value any
		base  map[string]any
		in    func(any) any
	}{
		{&File{}, base, func(v any) any { return v }},
		{Sample{}, map[string]any{"id": "x"}, func(v any) any { return with(base, "samples", []any{v}) }},
		{Step{}, map[string]any{"command": "x"}, func(v any) any { return with(base, "steps", []any{v}) }},
		{Environment{}, nil, func(v any) any { return with(base, "environment", v) }},
		{Grader{}, map[string]any{"command": "x"}, func(v any) any { return with(base, "grader", v) }},
		{score.Expect{}, nil, func(v any) any { return with(base, "expect", v) }},
		{score.Text{}, nil, func(v any) any { return with(base, "expect", map[string]any{"stdout": v}) }},
		{score.Artifact{}, map[string]any{"path": "x"}, func(v any) any {
			return with(base, "grader", map[string]any{"command": "x", "artifacts": []any{v}})
		}},
	} {
		for _, f := range reflect.VisibleFields(reflect.Indirect(reflect.ValueOf(place.value)).Type()) {
			key := f.Tag.Get("yaml")
			if key == "" || key == "-" || f.Anonymous || !f.IsExported() {
				continue
			}
			for _, v := range values {
				agree(place.in(with(place.base, key, v)))
			}
		}
		agree(place.in(with(place.base, "nonsense", 1)))
		for _, v := range values {
			agree(place.in(v))
		}
	}
	if tried < 60*len(values) {
		t.Errorf("tested %d documents", tried)
	}
}

func TestSchema_testTask(t *testing.T) {
	var v any
	if err := yaml.Unmarshal([]byte(all), &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if v, err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := schematest.Compile(t, schemaFile).Validate(v); err != nil {
		t.Error(err)
	}
}
