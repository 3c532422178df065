package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood/test/schematest"
)

func TestSchema_docExamples(t *testing.T) {
	for i, text := range examples(t) {
		if err := validate(t, text); err != nil {
			t.Errorf("example %d: %v", i, err)
		}
		if _, err := Parse("env.yaml", []byte(text)); err != nil {
			t.Errorf("example %d: %v", i, err)
		}
	}
}

func TestSchema_agreesWithParse(t *testing.T) {
	for name, c := range documents {
		if c.beyond {
			continue
		}
		if err := validate(t, c.text); (err == nil) != (c.says == nil) {
			t.Errorf("%s: schema: %v, Parse: %q", name, err, c.says)
		}
	}
}

func TestSchema_everyKey(t *testing.T) {
	values := []any{
		nil, true, 0, 1, -1, 1.5, 65536, "", "x", "/x", "/x:rw", "/", "/..", "a b", "none", "0", "7", "1.5m", "0s", "2GiB", "0b", ".", "gz", "ro", "docker",
		"1:1", "a:b:c", "host",
		[]any{},
		[]any{"a"},
		[]any{1},
		[]any{nil},
		[]any{[]any{}},
		map[string]any{},
	}
	for _, key := range []string{"a", "0", "80", "080", "65536", "", "a=b"} {
		for _, v := range []any{"x", "/x", "/x:ro", 0, 80, 65536, nil, []any{80}, []any{"x"}, map[string]any{"bind": "/x"}, map[string]any{"mode": "rw"}, map[string]any{"bind": nil}} {
			values = append(values, map[string]any{key: v})
		}
	}
	compiled := compileSchema(t)
	agree := func(doc map[string]any) {
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse("env.yaml", text)
		if schema := compiled.Validate(v); (schema == nil) != (err == nil) {
			t.Errorf("%s: schema: %v, Parse: %v", text, schema, err)
		}
	}
	sections := 0
	for i := range reflect.TypeFor[Environment]().NumField() {
		section := reflect.TypeFor[Environment]().Field(i)
		key := section.Tag.Get("yaml")
		for _, v := range values {
			doc := map[string]any{"type": "docker", "docker": map[string]any{"image": "i"}}
			doc[key] = v
			agree(doc)
			agree(map[string]any{"type": "local", key: v})
			if section.Type.Kind() != reflect.Struct {
				continue
			}
			sections++
			for j := range section.Type.NumField() {
				name := section.Type.Field(j).Tag.Get("yaml")
				if key == "limits" && (v == "7" || v == "1.5m") && (name == "memory" || name == "disk") {
					continue // a schema does not bound the value of a text
				}
				inner := map[string]any{name: v}
				if key == "docker" && name != "image" {
					inner["image"] = "i"
				}
				if key == "local" {
					agree(map[string]any{"type": "local", "local": inner})
					continue
				}
				doc := map[string]any{"type": "docker", "docker": map[string]any{"image": "i"}}
				doc[key] = inner
				agree(doc)
			}
		}
	}
	if sections != 7*len(values) {
		t.Errorf("tested %d sections", sections)
	}
}

// validate checks a document against the schema, as an editor does.
func validate(t *testing.T, text string) error {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(jsonOf(v))
	if err != nil {
		t.Fatal(err)
	}
	v, err = jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return compileSchema(t).Validate(v)
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	return schematest.Compile(t, schemaFile)
}

// jsonOf returns v with all keys converted to strings.
func jsonOf(v any) any {
	switch v := v.(type) {
	case map[any]any:
		m := map[string]any{}
		for k, x := range v {
			m[fmt.Sprint(k)] = jsonOf(x)
		}
		return m
	case map[string]any:
		for k, x := range v {
			v[k] = jsonOf(x)
		}
	}
	return v
}
