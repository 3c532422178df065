package faultproxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// An Engine compresses what it sends through a proxy only if the proxy's client accepts that. It costs the Engine much
// time.
func TestProxy_encoding(t *testing.T) {
	asked := make(chan string, 1)
	engine := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Accept-Encoding") }))
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s")) //nolint:noctx // it waits for nothing
	if err != nil {
		t.Fatal(err)
	}
	engine.Listener = listener
	engine.Start()
	defer engine.Close()
	socket := strings.TrimPrefix(Start(t, listener.Addr().String()).Host, "unix://")
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://docker/containers/x/archive", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got := <-asked; got != "" {
		t.Errorf("the Engine is asked for %q", got)
	}
}

func TestCallOf(t *testing.T) {
	for path, want := range map[string]string{
		"/v1.41/containers/json":            "GET /containers/json",
		"/v1.41/containers/a-b/json":        "GET /containers/*/json",
		"/v1.41/containers/0a1b":            "GET /containers/*",
		"/containers/create":                "GET /containers/create",
		"/v1.41/images/a/b:c/json":          "GET /images/*/json",
		"/v1.41/containers/0a1b/pause":      "GET /containers/*/pause",
		"/v1.41/networks/0a1b/connect":      "GET /networks/*/connect",
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
