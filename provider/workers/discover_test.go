//go:build linux && (amd64 || arm64)

package workers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/kubernetes"
	"github.com/fumehood/fumehood/provider/workers"
)

// clusterService is an API server that knows the endpoints of one Service.
type clusterService struct {
	kubeconfig string
	mu         sync.Mutex
	ready      map[string]bool // by address
	broken     bool
}

func newClusterService(t *testing.T) *clusterService {
	t.Helper()
	c := &clusterService{kubeconfig: filepath.Join(t.TempDir(), "config")}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.broken {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		var list discoveryv1.EndpointSliceList
		for address, ready := range c.ready {
			a, _ := net.ResolveTCPAddr("tcp", address)
			list.Items = append(list.Items, discoveryv1.EndpointSlice{
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: new(int32(a.Port))}}, //nolint:gosec // a port
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{a.IP.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
			})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // the test fails without it
	}))
	t.Cleanup(s.Close)
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + s.URL +
		"'}}]\ncontexts: [{name: x, context: {cluster: c, namespace: evals}}]\ncurrent-context: x\n"
	if err := os.WriteFile(c.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// set sets which addresses there are, and whether they are ready.
func (c *clusterService) set(ready map[string]bool, broken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready, c.broken = ready, broken
}

// serveTLS starts a server on TCP.
func serveTLS(t *testing.T, flags ...string) (s *server, address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	s = &server{dir: shortDir(t), url: "https://" + address}
	s.start(t, append([]string{"--listen", address}, flags...)...)
	await(t, "tcp", address, s)
	return s, address
}

// Workers of a Service get sandboxes while they are ready. Sandboxes stay on one that is not ready any more.
func TestProvider_discover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cluster := newClusterService(t)
	service, err := kubernetes.NewWorkerService(kubernetes.Options{Kubeconfig: cluster.kubeconfig}, "fumehood")
	if err != nil {
		t.Fatal(err)
	}
	cert, key := makeCertificate(t, dir, service.ServerName())
	const token = "a-token-of-some-length"
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--tls-cert", cert, "--tls-key", key, "--token-file", filepath.Join(dir, "token"), "--allow-kept"}
	a, atA := serveTLS(t, flags...)
	b, atB := serveTLS(t, flags...)
	var log bytes.Buffer
	p, err := workers.New(workers.Options{
		Discover: &workers.Discovery{Name: "kubernetes:fumehood", Flags: []string{"--workers", "kubernetes:fumehood"}, List: service.List, Every: time.Nanosecond},
		TLS:      &tls.Config{MinVersion: tls.VersionTLS12, ServerName: service.ServerName()}, CAFile: cert, Token: token,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context()) // cleanups need it
	t.Cleanup(func() {
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	_, err = p.Start(ctx, fumehood.Spec{Image: busybox})
	if conformance.WantError(t, err, fumehood.ErrUnavailable); !strings.Contains(err.Error(), "no worker of kubernetes:fumehood is ready") {
		t.Errorf("without endpoints: %v", err)
	}
	on := func(s *server, spec fumehood.Spec) fumehood.Sandbox {
		t.Helper()
		sb := start(t, p, spec)
		if !s.has(sb.Info().Name) {
			t.Errorf("%s is on another worker than %s", sb.Info().Name, s.url)
		}
		return sb
	}
	works := func(sb fumehood.Sandbox) {
		t.Helper()
		if res, err := sb.Exec(ctx, sh("exit 3")); err != nil || res.ExitCode != 3 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	cluster.set(map[string]bool{atA: true, atB: false}, false)
	old := on(a, fumehood.Spec{Image: busybox})
	kept := on(a, fumehood.Spec{Image: busybox, Name: "discovered-kept", Keep: true, TTL: time.Hour})
	t.Cleanup(func() {
		if _, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{"discovered-kept"}}); err != nil {
			t.Error(err)
		}
	})
	if c, err := kept.Connection(ctx); err != nil || !slices.Equal(c.Shell, []string{"fumehood", "shell", "discovered-kept", "--workers", "kubernetes:fumehood"}) {
		t.Errorf("%v, %v", c.Shell, err)
	}
	cluster.set(map[string]bool{atB: true}, false)
	for range 2 {
		works(on(b, fumehood.Spec{Image: busybox}))
	}
	works(old)
	opened, err := p.Open(ctx, "discovered-kept") // on a worker that gets no sandboxes
	if err != nil {
		t.Fatal(err)
	}
	works(opened)
	cluster.set(nil, true) // the last answer counts
	works(on(b, fumehood.Spec{Image: busybox}))
	if !strings.Contains(log.String(), "workers are not discovered") {
		t.Errorf("no warning: %s", log.String())
	}
	cluster.set(map[string]bool{atA: true, atB: true}, false)
	works(on(a, fumehood.Spec{Image: busybox})) // it has fewer
	works(old)
}

func TestProvider_discoverFails(t *testing.T) {
	t.Parallel()
	calls := 0
	p, err := workers.New(workers.Options{Discover: &workers.Discovery{Name: "mine", List: func(context.Context) ([]string, error) {
		calls++
		return nil, errors.New("out of order")
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := p.Start(t.Context(), fumehood.Spec{})
		if conformance.WantError(t, err, fumehood.ErrUnavailable); !strings.Contains(err.Error(), "mine: out of order") {
			t.Error(err)
		}
	}
	if calls != 1 {
		t.Errorf("%d calls at a time, want 1", calls)
	}
	if _, err := p.Machine(t.Context()); err == nil {
		t.Error("the machine of no workers is known")
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for name, opts := range map[string]workers.Options{
		"both":    {URLs: []string{"unix:/x"}, Discover: &workers.Discovery{List: func(context.Context) ([]string, error) { return nil, nil }}},
		"no list": {Discover: &workers.Discovery{}},
	} {
		if _, err := workers.New(opts); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
