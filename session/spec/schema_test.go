package spec

import (
	"flag"
	"reflect"
	"testing"

	"github.com/fumehood/fumehood/test/schematest"
)

const (
	schemaFile = "environment.schema.json"
	schemaID   = "https://raw.githubusercontent.com/fumehood/fumehood/main/session/spec/" + schemaFile
)

var updateSchema = flag.Bool("update-schema", false, "write "+schemaFile+" again")

func TestSchema_upToDate(t *testing.T) {
	schematest.Check(t, schemaFile, environmentSchema(t), *updateSchema)
}

type schema = schematest.Schema

func environmentSchema(t *testing.T) schema {
	s := schematest.Maker{
		T: t, Docs: schematest.Docs(t, "environment.go", "decode.go"), Forms: forms,
		Types: map[reflect.Type]func(schematest.Maker) schema{
			reflect.TypeFor[Mounts](): func(m schematest.Maker) schema {
				long := m.Object(reflect.TypeFor[mountTarget](), reflect.ValueOf(mountTarget{Mode: "ro"}))
				return schema{
					"type": []string{"object"}, "propertyNames": m.Text("host path"),
					"additionalProperties": schema{"oneOf": []schema{m.Text("target"), long}},
				}
			},
			reflect.TypeFor[Ports](): func(m schematest.Maker) schema {
				port := schema{"type": "integer", "minimum": 1, "maximum": 65535}
				return schema{
					"type": []string{"object"}, "propertyNames": m.Text("host port"),
					"properties":           schema{"0": schema{"oneOf": []schema{port, {"type": "array", "items": port}}}},
					"additionalProperties": port,
				}
			},
		},
		Defaults: map[reflect.Type]any{
			reflect.TypeFor[Docker](): Docker{}.WithDefaults(),
			reflect.TypeFor[Build]():  *Docker{Build: &Build{}}.WithDefaults().Build,
		},
	}.Object(reflect.TypeFor[Environment](), reflect.ValueOf(Environment{}.WithDefaults()))
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = schemaID
	s["title"] = "Fumehood environment"
	// The rules of func check.
	has := func(key string, options ...schema) schema {
		value := schema{"not": schema{"type": "null"}}
		if len(options) > 0 {
			value = options[0]
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
