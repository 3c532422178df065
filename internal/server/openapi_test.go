package server

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

var updateOpenAPI = flag.Bool("update-openapi", false, "rewrite docs/openapi.json")

// The document in docs is the one that the server has.
func TestOpenAPI(t *testing.T) {
	s := New(t.Context(), Options{Open: func(context.Context, func(provider.Progress)) (fumehood.Provider, error) {
		return nil, fumehood.ErrUnsupported
	}})
	text, err := s.api.OpenAPI().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	file := filepath.Join("..", "..", "docs", "openapi.json")
	if *updateOpenAPI {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil { //nolint:gosec // everybody may read it
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("docs/openapi.json is out of date: go test ./internal/server -run TestOpenAPI -args -update-openapi")
	}
}

// The document requires what the server requires, and offers no content type that the server refuses.
func TestOpenAPI_requests(t *testing.T) {
	s := New(t.Context(), Options{})
	doc := s.api.OpenAPI()
	uploads := map[string]string{"write-file": typeBytes, "write-archive": typeTar}
	seen := 0
	for _, item := range doc.Paths {
		for _, o := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
			if o == nil {
				continue
			}
			if body := o.RequestBody; body != nil && body.Content["application/json"] != nil && len(body.Content) != 1 {
				t.Errorf("%s: %d content types, want JSON alone", o.OperationID, len(body.Content))
			}
			if want := uploads[o.OperationID]; want != "" {
				seen++
				if o.RequestBody == nil || o.RequestBody.Content[want] == nil {
					t.Errorf("%s: no body of the type %s", o.OperationID, want)
				}
			}
			for _, p := range o.Parameters {
				switch p.Name {
				case "Fumehood-Lease":
					if !p.Required {
						t.Errorf("%s: the lease is not required", o.OperationID)
					}
				case "path":
					if p.Schema.MinLength == nil || *p.Schema.MinLength != 1 {
						t.Errorf("%s: the path may be empty", o.OperationID)
					}
				}
			}
			if ok := o.Responses["200"]; ok != nil && len(ok.Content) == 0 {
				t.Errorf("%s: an answer without a content type", o.OperationID)
			}
			if !slices.Contains(o.Errors, http.StatusRequestTimeout) {
				t.Errorf("%s: no answer for a body that does not arrive", o.OperationID)
			}
		}
	}
	if seen != len(uploads) {
		t.Errorf("%d uploads, want %d", seen, len(uploads))
	}
	for _, name := range []string{"rows", "cols"} {
		if p := doc.Components.Schemas.Map()["Cmd"].Properties[name]; p.Maximum == nil || *p.Maximum != 65535 {
			t.Errorf("Cmd: %s has no maximum", name)
		}
	}
}
