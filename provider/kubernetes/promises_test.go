//go:build linux && amd64

package kubernetes_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

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
		{"compose project busybox root", project(twoPrograms, pushed(t)), conformance.Users{Name: "tester", UID: 1000, GID: 1000}},
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
				switch spec := c.spec; {
				case spec.Compose != nil && keeps:
					sb = keep(t, p, project(twoWaiting, pushed(t)))
				case keeps || spec.Keep:
					sb = keep(t, p, spec)
				default:
					sb = start(t, p, spec)
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
	image := pushed(t) // of projects, whose images are looked up in their registry
	conformance.RunProvider(t, conformance.ProviderHarness{
		Column: "kubernetes provider", OneHostName: true,
		Spec: fumehood.Spec{Image: image}, Failing: fumehood.Spec{Image: busybox, Dir: "/etc/passwd"},
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
	hinder = &atomic.Bool{}
	return behind(t, config, func(r *http.Request) bool { return !hinder.Load() || r.Method != http.MethodDelete }), hinder
}

// counted returns a kubeconfig like the given one, and what returns the requests so far, as "METHOD PATH" with the Pods' names left
// out.
func counted(t *testing.T, config string) (proxied string, requests func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	proxied = behind(t, config, func(r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		_, path, _ := strings.Cut(r.URL.Path, "/pods")
		if parts := strings.Split(path, "/"); len(parts) > 1 {
			parts[1] = "*"
			path = strings.Join(parts, "/")
		}
		all = append(all, r.Method+" pods"+path)
		return true
	})
	return proxied, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// behind returns a kubeconfig like the given one, for a proxy that refuses requests that may not pass.
func behind(t *testing.T, config string, passes func(*http.Request) bool) (proxied string) {
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
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	proxy.FlushInterval = -1 // watches are streams
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !passes(r) {
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
	return proxied
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

// Projects whose services have programs of their own, and whose services wait.
const (
	twoPrograms = "services:\n  default: {image: IMAGE, command: httpd -f -p 8080, depends_on: [other]}\n  other: {image: IMAGE, command: httpd -f -p 8081}\n"
	twoWaiting  = "services:\n  default: {image: IMAGE, command: sleep infinity}\n  other: {image: IMAGE, command: sleep infinity}\n"
)

func project(text, image string) fumehood.Spec {
	return fumehood.Spec{Compose: &fumehood.Compose{Content: strings.ReplaceAll(text, "IMAGE", image)}}
}

// pushed pushes busybox of the Docker Engine to a registry in this process, and returns its name there.
func pushed(t testing.TB) string {
	t.Helper()
	images.Lock()
	defer images.Unlock()
	if images.busybox != "" {
		return images.busybox
	}
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)))) // as long as the process
	images.busybox = push(t, s.URL)
	return images.busybox
}

// push pushes busybox of the Docker Engine to a registry, and returns its name there.
func push(t testing.TB, registry string, options ...remote.Option) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.CommandContext(t.Context(), "docker", "save", "-o", file, busybox).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Another image: a kubelet that has pulled one does not use it by its name of an archive, unless it is pulled by that too.
	if img, err = mutate.CreatedAt(img, v1.Time{Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(strings.TrimPrefix(registry, "http://") + "/" + busybox + ":1")
	if err == nil {
		err = remote.Write(tag, img, append(options, remote.WithContext(t.Context()))...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tag.String()
}

// images are those in the registry of this process.
var images struct {
	sync.Mutex
	busybox string // its name
}
