package faultproxy

import "testing"

func TestCallOf(t *testing.T) {
	for path, want := range map[string]string{
		"/v1.41/containers/json":            "GET /containers/json",
		"/v1.41/containers/a-b/json":        "GET /containers/*/json",
		"/v1.41/containers/0a1b":            "GET /containers/*",
		"/containers/create":                "GET /containers/create",
		"/v1.41/images/a/b:c/json":          "GET /images/*/json",
		"/v1.41/exec/0a1b/start":            "GET /exec/*/start",
		"/v1.41/volumes/fumehood-guest-1-a": "GET /volumes/*",
		"/v1.41/events":                     "GET /events",
		"/_ping":                            "GET /_ping",
	} {
		if got := callOf("GET", path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}
