package imagestore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fumehood/fumehood"
)

// serve runs a registry until the end of the test, and returns its address.
func serve(t testing.TB, around func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	t.Helper()
	next := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if around == nil || r.Method != http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		around(w, r, next)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func push(t testing.TB, ref string, img remote.Taggable) {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	switch img := img.(type) {
	case v1.Image:
		err = remote.Write(r, img)
	case v1.ImageIndex:
		err = remote.WriteIndex(r, img)
	default:
		err = remote.Put(r, img)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// answers is a registry whose manifests and blobs are given.
func answers(t testing.TB, bodies map[string]string) string {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if _, name, _ := strings.Cut(r.URL.Path, "/v2/"); name != "" {
			body, ok := bodies[name[strings.LastIndex(name, "/")+1:]]
			if !ok {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
			_, _ = io.WriteString(w, body)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func TestGet_badManifests(t *testing.T) {
	noEngine(t)
	b := build(t, layerOf(t, file("f", "x")))
	desc := func(content string) string {
		return fmt.Sprintf(`{"digest":%q,"size":%d}`, digest([]byte(content)), len(content))
	}
	config, layer := string(b.config), string(b.layers[0])
	with := func(config, layers string) string {
		return `{"schemaVersion":2,"config":` + config + `,"layers":[` + layers + `]}`
	}
	d := func(content string) string { return digest([]byte(content)).String() }
	for _, test := range []struct {
		name   string
		bodies map[string]string
		class  error
		text   string
	}{
		{"not JSON", map[string]string{"1": "<html>"}, fumehood.ErrConfig, "manifest"},
		{"empty", map[string]string{"1": "{}"}, fumehood.ErrConfig, "without a config"},
		{"schema 1", map[string]string{"1": `{"schemaVersion":1,"fsLayers":[]}`}, fumehood.ErrUnsupported, "schema version 1"},
		{"huge", map[string]string{"1": `{"x":"` + strings.Repeat("x", maxManifest) + `"}`}, fumehood.ErrLimit, ""},
		{"many layers", map[string]string{"1": with(desc(config), strings.TrimSuffix(strings.Repeat(desc(layer)+",", 10_000), ","))}, fumehood.ErrLimit, "10000 layers"},
		{"lying config", map[string]string{"1": with(desc(config), desc(layer)), d(config): config + " ", d(layer): layer}, fumehood.ErrInfrastructure, ""},
		{"huge config", map[string]string{"1": with(desc(config), desc(layer)), d(config): strings.Repeat(" ", maxConfig) + config}, fumehood.ErrLimit, ""},
		{"lying layer", map[string]string{"1": with(desc(config), desc(layer)), d(config): config, d(layer): layer + "x"}, fumehood.ErrInfrastructure, ""},
		{"other layer", map[string]string{"1": with(desc(config), desc("other")), d(config): config, d("other"): "other"}, fumehood.ErrConfig, "layer"},
		{"no layer", map[string]string{"1": with(desc(config), desc(layer)), d(config): config}, fumehood.ErrConfig, "404"},
		{"digest with dots", map[string]string{"1": with(`{"digest":"sha256:../../x","size":1}`, "")}, fumehood.ErrConfig, "manifest"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStore(t)
			ref := answers(t, test.bodies) + "/x:1"
			fails(t, s, ref, test.class)
			if _, err := s.Get(t.Context(), ref); err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("error %v, want %q", err, test.text)
			}
		})
	}
}

func TestGet_registryErrors(t *testing.T) {
	noEngine(t)
	status := func(code int, body string) string {
		return serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.WriteHeader(code)
				_, _ = io.WriteString(w, body)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	for _, test := range []struct {
		name, host string
		class      error
		text       string
	}{
		{"no image", serve(t, nil), fumehood.ErrConfig, "check the image's name and tag"},
		{"unauthorized", status(401, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}`), fumehood.ErrConfig, "docker login 127.0.0.1"},
		{"forbidden", status(403, ""), fumehood.ErrConfig, "403 Forbidden"},
		{"busy", status(429, ""), fumehood.ErrInfrastructure, "busy or broken"},
		{"broken", status(503, strings.Repeat("x", 10_000)), fumehood.ErrInfrastructure, "busy or broken"},
		{"unreachable", strings.TrimPrefix(closed.URL, "http://"), fumehood.ErrUnavailable, "cannot reach the registry"},
		{"unknown host", "registry.invalid:5000", fumehood.ErrUnavailable, "cannot reach the registry"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStore(t)
			s.retries = remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}
			fails(t, s, test.host+"/x:1", test.class)
			_, err := s.Get(t.Context(), test.host+"/x:1")
			if err == nil || !strings.Contains(err.Error(), test.text) || len(err.Error()) > 1000 {
				t.Errorf("error %v, want %q", err, test.text)
			}
		})
	}
	t.Run("busy once", func(t *testing.T) {
		var asked atomic.Int32
		host := serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/") && asked.Add(1) == 1 {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
		b := sample(t)
		push(t, host+"/x:1", b.image(t))
		s := newStore(t)
		s.retries = remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3}
		checkSample(t, get(t, s, host+"/x:1"), b)
	})
	t.Run("interrupted", func(t *testing.T) {
		var cut sync.Map
		host := serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if _, again := cut.LoadOrStore(r.URL.Path, true); strings.Contains(r.URL.Path, "/blobs/") && !again {
				w.Header().Set("Content-Length", "1000000")
				_, _ = io.WriteString(w, "\x1f\x8b") // and the connection ends
				return
			}
			next.ServeHTTP(w, r)
		})
		b := sample(t)
		push(t, host+"/x:1", b.image(t))
		s := newStore(t)
		for _, l := range b.layers { // configs are fetched once
			cut.Delete("/v2/x/blobs/" + digest(l).String())
		}
		cut.Store("/v2/x/blobs/"+b.id(), true)
		checkSample(t, get(t, s, host+"/x:1"), b)
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		host := serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				cancel()
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
		push(t, host+"/x:1", sample(t).image(t))
		_, err := newStore(t).Get(ctx, host+"/x:1")
		if !errors.Is(err, fumehood.ErrCanceled) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A registry that is silent, or sends a byte now and then, does not hold anybody up.
func TestGet_silent(t *testing.T) {
	noEngine(t)
	drip := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		for range time.Tick(time.Millisecond) {
			if _, err := io.WriteString(w, " "); err != nil || r.Context().Err() != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){"silent": silent, "drips": drip} {
		for _, part := range []string{"/v2/", "/manifests/", "/blobs/"} {
			if name == "drips" && part == "/v2/" { // nothing reads that answer
				continue
			}
			t.Run(name+" "+strings.Trim(part, "/"), func(t *testing.T) {
				var pushed atomic.Bool
				host := serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
					if pushed.Load() && strings.Contains(r.URL.Path, part) {
						answer(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
				s := newStore(t)
				s.patience = 100 * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				push(t, host+"/x:1", sample(t).image(t))
				pushed.Store(true)
				_, err := s.Get(ctx, host+"/x:1")
				if !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "does not answer: "+host) {
					t.Error(err)
				}
			})
		}
	}
}

func TestGet_credentials(t *testing.T) {
	noEngine(t)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:secret"))
	open := true
	host := serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !open && r.Header.Get("Authorization") != want {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	b := sample(t)
	push(t, host+"/private", b.image(t))
	open = false
	config := t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	s := newStore(t)
	_, err := s.Get(t.Context(), host+"/private")
	var answer *transport.Error
	if !errors.Is(err, fumehood.ErrConfig) || errors.As(err, &answer) {
		t.Error(err)
	}
	auth := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, strings.TrimPrefix(want, "Basic "))
	if err := os.WriteFile(filepath.Join(config, "config.json"), []byte(auth), 0o600); err != nil {
		t.Fatal(err)
	}
	checkSample(t, get(t, s, host+"/private"), b)
}
