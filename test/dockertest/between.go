package dockertest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood/internal/docker/engine"
)

// Between starts a proxy in front of the daemon that runs until the end of the test. It calls handle for each
// request; next forwards the request to the daemon. It returns the path of the proxy's socket, which is short enough
// for any client. If the daemon has no unix socket, the test is skipped.
func Between(t testing.TB, e *engine.Client, handle func(w http.ResponseWriter, r *http.Request, next http.Handler)) (socket string) {
	t.Helper()
	daemon := Socket(t, e)
	dir, err := os.MkdirTemp("", "between")
	if err != nil {
		t.Fatal(err)
	}
	// As without a proxy, the daemon must not compress what it sends.
	transport := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", daemon)
	}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	proxy.FlushInterval = -1
	proxy.Transport = transport
	// Nothing is logged.
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	socket = filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		_ = os.RemoveAll(dir)
	})
	return socket
}
