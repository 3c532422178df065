//go:build linux && amd64

package kubernetes_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

func TestProvider_Promises(t *testing.T) {
	t.Parallel()
	p := newProvider(t, kubernetes.Options{})
	program, err := os.ReadFile(conformance.BuildProbe(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		spec  fumehood.Spec
		users conformance.Users
	}{
		{"debian root", fumehood.Spec{Image: debian}, conformance.Users{Name: "tester", UID: 1000, GID: 1000}},
		{"debian user", fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester"}, conformance.Users{Name: "daemon", UID: 1, GID: 1}},
		{"of another process debian user", fumehood.Spec{Image: debian, User: "tester", Dir: "/home/tester", Keep: true}, conformance.Users{Name: "daemon", UID: 1, GID: 1}},
		{"static root", fumehood.Spec{Image: static}, conformance.Users{UID: 2000, GID: 0}},
	} {
		exceptions := map[string]conformance.Exception{}
		if c.spec.User == "" {
			exceptions["errors/forbidden file is ErrPermission"] = conformance.RootMayAll
		}
		if c.spec.Keep {
			exceptions["stop/sandbox not kept cannot be stopped"] = conformance.AlwaysKept
		}
		if c.spec.Image == static {
			exceptions["exec/commands run as a named user"] = conformance.NoUserNames
		}
		t.Run("kubernetes "+c.name, func(t *testing.T) {
			t.Parallel()
			probe := c.spec.Dir + "/probe"
			begin := func(t *testing.T, keeps bool) fumehood.Sandbox {
				var sb fumehood.Sandbox
				if keeps || c.spec.Keep {
					sb = keep(t, p, c.spec)
				} else {
					sb = start(t, p, c.spec)
				}
				if c.spec.Keep {
					if err := sb.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					var err error
					if sb, err = p.Open(t.Context(), sb.Info().Name); err != nil {
						t.Fatal(err)
					}
				}
				if err := sb.WriteFile(t.Context(), probe, program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
					t.Fatal(err)
				}
				return sb
			}
			conformance.Run(t, conformance.Harness{
				Column: "kubernetes " + c.name, Probe: probe, Users: c.users, Exceptions: exceptions,
				Start:     func(t *testing.T) fumehood.Sandbox { return begin(t, false) },
				StartKept: func(t *testing.T) fumehood.Sandbox { return begin(t, true) },
			})
		})
	}
}

func TestRunProvider_Promises(t *testing.T) {
	t.Parallel()
	config := node(t)
	exceptions := conformance.NoProjects("the kubernetes provider starts no Compose projects")
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column: "kubernetes provider", Exceptions: maps.Clone(exceptions),
		Spec: fumehood.Spec{Image: busybox}, Failing: fumehood.Spec{Image: busybox, Dir: "/etc/passwd"},
		New: func(t *testing.T) conformance.Subject {
			config := namespaced(t, config) // cleanups of other tests must not see its sandboxes
			proxied, hinder := hindered(t, config)
			return conformance.Subject{
				Provider: newProvider(t, kubernetes.Options{Kubeconfig: proxied}), Dir: config,
				Hinder: func(*testing.T, fumehood.Sandbox) func() {
					hinder.Store(true)
					return func() { hinder.Store(false) }
				},
				Another: func(t *testing.T) fumehood.Provider { return newProvider(t, kubernetes.Options{Kubeconfig: config}) },
				Exists:  func(t *testing.T, name string) bool { return pod(t, config, name) != "" },
				Guests: func(t *testing.T, name string) int {
					sb, err := newProvider(t, kubernetes.Options{Kubeconfig: config}).Open(t.Context(), name)
					if err != nil {
						t.Fatal(err)
					}
					res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "grep -o '@fumehood-[0-9a-f]*' /proc/net/unix | sort -u | wc -l"}})
					if err != nil {
						t.Fatal(err)
					}
					n, err := strconv.Atoi(strings.TrimSpace(res.Stdout.Text()))
					if err != nil {
						t.Fatal(err)
					}
					return n
				},
			}
		},
	})
}

// namespaced returns a kubeconfig like the given one, with a namespace of its own, which t removes.
func namespaced(t *testing.T, config string) string {
	t.Helper()
	name, ready, remove, err := kubernetes.MakeNamespace(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := remove(ctx); err != nil {
			t.Error(err)
		}
	})
	conformance.Eventually(t, "the namespace is ready", func() bool { return ready() == nil })
	text, err := os.ReadFile(config)
	own := filepath.Join(t.TempDir(), "kubeconfig")
	if err == nil {
		err = os.WriteFile(own, []byte(strings.Replace(string(text), "{cluster: c,", "{namespace: "+name+", cluster: c,", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// hindered returns a kubeconfig like the given one, for an API server that deletes nothing while hinder is true.
func hindered(t *testing.T, config string) (proxied string, hinder *atomic.Bool) {
	t.Helper()
	dir := filepath.Dir(node(t))
	authority, err := os.ReadFile(filepath.Join(dir, "api.crt"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `server: "`)
	server, _, _ := strings.Cut(rest, `"`)
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	proxy, hinder := httputil.NewSingleHostReverseProxy(target), &atomic.Bool{}
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	proxy.FlushInterval = -1 // watches are streams
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hinder.Load() && r.Method == http.MethodDelete {
			http.Error(w, "hindered by the test", http.StatusInternalServerError)
			return
		}
		r.Header.Set("Authorization", "Bearer admin") // clients send no token without TLS
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	proxied = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(proxied, []byte(strings.Replace(string(text), server, s.URL, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return proxied, hinder
}

// pod returns the Pod of a sandbox as JSON; empty if there is none.
func pod(t *testing.T, config, sandbox string) string {
	t.Helper()
	text, err := kubernetes.RawPod(context.WithoutCancel(t.Context()), config, sandbox)
	if err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
	return text
}
