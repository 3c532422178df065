package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// Clients name what permits a request by the flag in its error, and not by its text.
func TestErrors_flag(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{Limits: Limits{Sandboxes: 1, Memory: 64 << 20, Idle: 1}})
	for flag, spec := range map[string]map[string]any{
		"allow-egress":    {"network": map[string]any{"mode": "bridge"}},
		"allow-host-path": {"mounts": []map[string]any{{"host": "/etc", "container": "/x"}}},
		"allow-kept":      {"keep": true, "ttl_ms": 1000},
		"allow-unsafe":    {"allow_unsafe": true},
		"max-memory":      {"limits": map[string]any{"memory": 65 << 20}},
	} {
		f := c.failure("/v1/sandboxes", spec)
		if f.Flag != flag || !strings.Contains(f.Hint, "--"+flag) {
			t.Errorf("%s: %+v", flag, f)
		}
	}
	if f := c.failure("/v1/sandboxes?idle_ms=1000", map[string]any{}); f.Flag != "idle" {
		t.Errorf("%+v", f)
	}
	if f := c.failure("/v1/images", map[string]any{"compose": map[string]any{"content": "services: {}"}}); f.Flag != "allow-egress" {
		t.Errorf("%+v", f)
	}
	images := serve(t, Options{Permit: Permit{Images: []string{"python:*"}}})
	if f := images.failure("/v1/sandboxes", map[string]any{"image": "debian"}); f.Flag != "allow-image" {
		t.Errorf("%+v", f)
	}
	if f := c.failure("/v1/sandboxes", map[string]any{"ports": "80"}); f.Flag != "" || strings.Contains(f.Message, "body") || !strings.Contains(f.Message, "ports: ") {
		t.Errorf("an error about a field: %+v", f)
	}
}

// failure returns the error of a POST.
func (c *served) failure(path string, body any) api.Error {
	c.t.Helper()
	status, data := c.answer(http.MethodPost, path, body)
	var f errorAnswer
	if err := json.Unmarshal(data, &f); err != nil || status < 400 {
		c.t.Fatalf("%s: %d %s: %v", path, status, data, err)
	}
	return f.Body
}

// The answer about a sandbox has why the provider was chosen, where the Docker Engine refuses the user.
func TestServer_providerReason(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"", "this user may not use it"} {
		c := serve(t, Options{Reason: func() string { return reason }})
		var got api.Sandbox
		c.ok("POST", "/v1/sandboxes", fumehood.Spec{}, &got)
		if got.Reason != reason {
			t.Errorf("%q, want %q", got.Reason, reason)
		}
	}
}
