package server

import (
	"io"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/jsontext"
	"github.com/fumehood/fumehood/session/workspace"
)

// configuration returns the API's configuration.
func configuration(version string) huma.Config {
	setErrors()
	c := huma.DefaultConfig("Fumehood", version)
	c.CreateHooks = nil // no $schema in answers
	c.Formats = map[string]huma.Format{"application/json": strictJSON, "json": strictJSON}
	c.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[api.Text](), reflect.TypeFor[textSchema]())
	c.Components.Schemas.RegisterTypeAlias(reflect.TypeFor[api.Env](), reflect.TypeFor[envSchema]())
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "/v1/openapi", "", ""
	c.RejectUnknownQueryParameters = true
	c.Info.Description = "Sandboxes for untrusted code. How a program ended is a value, never an error: see Result. Every other answer than a success has an Error."
	c.Servers = []*huma.Server{{URL: "http://localhost", Description: "over the server's unix socket"}}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "needed where the server listens on TCP"},
	}
	c.Security = []map[string][]string{{}, {"token": {}}}
	c.OnAddOperation = []huma.AddOpFunc{func(_ *huma.OpenAPI, o *huma.Operation) { describeRequest(o) }}
	correct(c.Components.Schemas)
	return c
}

// strictJSON writes answers with api.Encode, and refuses requests that package encoding/json would alter: another command would run.
var strictJSON = huma.Format{
	Marshal: func(w io.Writer, v any) error { return api.Encode(w, "", v) },
	Unmarshal: func(data []byte, v any) error {
		if err := jsontext.Check(data); err != nil {
			return err
		}
		return huma.DefaultJSONFormat.Unmarshal(data, v)
	},
}

// textSchema describes an api.Text.
type textSchema struct{}

// Schema returns the schema.
func (textSchema) Schema(r huma.Registry) *huma.Schema {
	return addSchema(r, "Text", &huma.Schema{
		Description: "a name, path, argument or variable, which may have any bytes",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString},
			{
				Type: huma.TypeObject, Description: "one that is not UTF-8", Required: []string{"base64"}, AdditionalProperties: false,
				Properties: map[string]*huma.Schema{"base64": {Type: huma.TypeString, ContentEncoding: "base64"}},
			},
		},
	})
}

// envSchema describes an api.Env.
type envSchema struct{}

// Schema returns the schema.
func (envSchema) Schema(r huma.Registry) *huma.Schema {
	return addSchema(r, "Env", &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeObject, AdditionalProperties: textSchema{}.Schema(r), Description: "values by names"},
		{Type: huma.TypeArray, Items: textSchema{}.Schema(r), Description: "texts of the form NAME=VALUE, for names that are not UTF-8"},
	}})
}

// addSchema adds a schema to the components, and returns a reference to it.
func addSchema(r huma.Registry, name string, s *huma.Schema) *huma.Schema {
	if r.Map()[name] == nil {
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// correct changes the schemas of types whose JSON differs from their fields: times are numbers of milliseconds, and
// outputs are texts.
func correct(schemas huma.Registry) {
	millis := func(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeNumber, Description: doc} }
	for t, more := range map[reflect.Type]map[string]*huma.Schema{
		reflect.TypeFor[fumehood.Compose](): {
			"ready_timeout_ms": millis("time until all services are ready"), "pull_timeout_ms": millis("total time of pulls"), "build_timeout_ms": millis("total time of builds"),
		},
		reflect.TypeFor[fumehood.Spec]():     {"ttl_ms": millis("how long a kept sandbox stays")},
		reflect.TypeFor[fumehood.Usage]():    {"user_ms": millis("processor time in user mode"), "system_ms": millis("processor time in the kernel")},
		reflect.TypeFor[fumehood.Output]():   {},
		reflect.TypeFor[fumehood.Result]():   {"duration_ms": millis("from start to end")},
		reflect.TypeFor[api.SessionResult](): {"duration_ms": millis("from start to end, with the setup")},
		reflect.TypeFor[task.StepResult]():   {"duration_ms": millis("from start to end")},
		reflect.TypeFor[api.EvalEvent]():     {},
		reflect.TypeFor[workspace.Change]():  {"path": textSchema{}.Schema(schemas)},
		reflect.TypeFor[workspace.Entry]():   {"path": textSchema{}.Schema(schemas), "target": textSchema{}.Schema(schemas)},
	} {
		schemas.Schema(t, true, "")
		s := schemas.SchemaFromRef("#/components/schemas/" + t.Name())
		if t == reflect.TypeFor[fumehood.Output]() {
			s.Properties = map[string]*huma.Schema{
				"text":      {Type: huma.TypeString, Description: "the output, with U+FFFD for bytes that are not UTF-8"},
				"base64":    {Type: huma.TypeString, ContentEncoding: "base64", Description: "the output, if it is not UTF-8"},
				"bytes":     {Type: huma.TypeInteger, Format: "int64", Description: "bytes that the program wrote"},
				"truncated": {Type: huma.TypeBoolean, Description: "whether the beginning was dropped"},
			}
			s.Required = []string{"text", "bytes", "truncated"}
		}
		if t == reflect.TypeFor[api.EvalEvent]() {
			s.Required = []string{"event"} // it has the fields of one event
		}
		if t == reflect.TypeFor[workspace.Change]() {
			for _, side := range []string{"before", "after"} { // null if there is none
				s.Properties[side] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: "#/components/schemas/Entry"}, {Type: "null"}}}
			}
		}
		for name, schema := range more {
			s.Properties[name] = schema
		}
		s.PrecomputeMessages()
	}
}

// describeRequest corrects what huma derives from the input of an operation.
func describeRequest(o *huma.Operation) {
	if o.RequestBody != nil && o.RequestBody.Content["application/json"] != nil {
		delete(o.RequestBody.Content, typeBytes) // RawBody has the same JSON
	}
	if uploaded := map[string]string{"write-file": typeBytes, "write-archive": typeTar}[o.OperationID]; uploaded != "" {
		o.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			uploaded: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		}}
	}
	for _, p := range o.Parameters {
		if p.In == "header" && p.Name == "Fumehood-Lease" {
			p.Required = true // the handler checks it: its error has a hint
		}
	}
}
