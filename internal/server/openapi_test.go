package server

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

var updateOpenAPI = flag.Bool("update-openapi", false, "rewrite docs/openapi.json")

// The document in docs is the one that the server has.
func TestOpenAPI(t *testing.T) {
	s := New(t.Context(), Options{Open: func(context.Context, func(api.Progress)) (fumehood.Provider, error) {
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
