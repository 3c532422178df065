package docker_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// testRegistry serves one image with random content on the loopback address, where daemons do not require TLS.
type testRegistry struct {
	ref       string
	requests  atomic.Int64 // all requests
	manifests atomic.Int64 // requests for manifests: at least one for each pull
}

// serveImage starts a registry. Call it before creating the provider that uses the image, so that the image is removed
// last.
func serveImage(t *testing.T) *testRegistry {
	t.Helper()
	newProvider(t, docker.Options{}) // skips the test without Docker
	r := &testRegistry{}
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/manifests/") {
			r.manifests.Add(1)
		}
		store.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	image, err := random.Image(200<<10, 3)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.ConfigFile(image, linuxConfig(t, image)); err != nil {
		t.Fatal(err)
	}
	r.ref = strings.TrimPrefix(server.URL, "http://") + "/fumehood-test/pull:1"
	ref, err := name.ParseReference(r.ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.requests.Store(0)
	r.manifests.Store(0)
	t.Cleanup(func() { removeImage(t, r.ref) })
	return r
}

func linuxConfig(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	return config
}

func removeImage(t *testing.T, ref string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	c, err := composesdk.Connect(ctx, composesdk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Remove it by ID: if removed by name, the Engine would keep it under its digest.
	image, found, err := c.Engine.Image(ctx, ref)
	if err == nil && found {
		err = c.Engine.Remove(ctx, engine.Object{Kind: engine.ImageKind, ID: image.ID, Name: ref})
	}
	if err != nil {
		t.Error(err)
	}
}

func TestPull_once(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	r := serveImage(t)
	p := newProvider(t, docker.Options{Progress: func(provider.Progress) { begun.Add(1) }})
	sandboxes := make([]fumehood.Sandbox, tier.Pick(t, 10, 10, 50))
	errs := make([]error, len(sandboxes))
	var wg sync.WaitGroup
	for i := range sandboxes {
		wg.Go(func() { sandboxes[i], errs[i] = p.Start(t.Context(), fumehood.Spec{Image: r.ref}) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := r.manifests.Load(); n != 1 {
		t.Errorf("the registry was asked for the manifest %d times, want once", n)
	}
	if begun.Load() == 0 {
		t.Error("no progress was reported")
	}
	r.requests.Store(0)
	start(t, p, fumehood.Spec{Image: r.ref})
	if n := r.requests.Load(); n != 0 {
		t.Errorf("an image that is present caused %d requests", n)
	}
}

func TestPull_missingImage(t *testing.T) {
	t.Parallel()
	r := serveImage(t)
	p := newProvider(t, docker.Options{})
	missing := strings.Replace(r.ref, ":1", ":2", 1)
	_, err := p.Start(t.Context(), fumehood.Spec{Image: missing})
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v", err)
	}
}

func TestPull_noRegistry(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	_, err := p.Start(t.Context(), fumehood.Spec{Image: "127.0.0.1:1/fumehood-test/nothing"})
	if !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("got %v, class %v", err, fumehood.ClassOf(err))
	}
}
