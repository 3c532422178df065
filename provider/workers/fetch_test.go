//go:build linux && (amd64 || arm64)

package workers_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/workers"
)

// Each worker gets the image. An image that a worker may not have, or that no registry has, is the error of that worker.
func TestProvider_FetchImage(t *testing.T) {
	t.Parallel()
	r := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(r.Close)
	prefix := strings.TrimPrefix(r.URL, "http://") + "/"
	layer, err := random.Layer(1000, types.DockerLayer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(config, layer)
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"one:1", "two:1"} {
		ref, err := name.ParseReference(prefix + image)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img, remote.WithContext(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	servers := []*server{serveEmpty(t), serveEmpty(t), serve(t, "--allow-image", prefix+"one*")}
	all := newProvider(t, servers[0].url, servers[1].url)
	mixed := newProvider(t, servers[0].url, servers[2].url)
	images, err := all.NeededImages(t.Context(), fumehood.Spec{Image: prefix + "one:1"})
	if err != nil || len(images) != 1 || images[0] != (provider.NeededImage{Kind: provider.NeededPull, Ref: prefix + "one:1"}) {
		t.Fatalf("got %+v, %v", images, err)
	}
	one, two := images[0], provider.NeededImage{Kind: provider.NeededPull, Ref: prefix + "two:1"}
	has := func(i provider.NeededImage) bool {
		t.Helper()
		has, err := all.HasNeeded(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		return has
	}
	if has(one) {
		t.Error("the workers have the image already")
	}
	if err := newProvider(t, servers[0].url).FetchImage(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if has(one) {
		t.Error("the second worker has the image of the first")
	}
	if err := all.FetchImage(t.Context(), one); err != nil || !has(one) {
		t.Errorf("got %v, %t", err, has(one))
	}
	err = mixed.FetchImage(t.Context(), two)
	if err == nil || !strings.Contains(err.Error(), "is not allowed") || !strings.Contains(err.Error(), servers[2].url) || strings.Contains(err.Error(), servers[0].url) || has(two) {
		t.Errorf("got %v", err)
	}
	err = all.FetchImage(t.Context(), provider.NeededImage{Kind: provider.NeededPull, Ref: prefix + "none:1"})
	if err == nil || !strings.Contains(err.Error(), servers[0].url) || !strings.Contains(err.Error(), servers[1].url) {
		t.Errorf("got %v", err)
	}
	for _, i := range []provider.NeededImage{{Kind: provider.NeededBuild, Ref: "x"}, {Kind: provider.NeededPull, Ref: "x", Platform: "linux/s390x"}} {
		if err := all.FetchImage(t.Context(), i); err == nil {
			t.Errorf("%+v is fetched", i)
		}
	}
}

// Workers that are discovered are asked too, and without one nothing is said to be there.
func TestProvider_FetchImage_discovered(t *testing.T) {
	t.Parallel()
	var urls []string
	p, err := workers.New(workers.Options{Discover: &workers.Discovery{
		Name: "test", Every: 1, List: func(context.Context) ([]string, error) { return urls, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.WithoutCancel(t.Context()))
	i := provider.NeededImage{Kind: provider.NeededPull, Ref: "localhost:1/none:1"}
	if has, err := p.HasNeeded(t.Context(), i); has || !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("without a worker: %v, %v", has, err)
	}
	if err := p.FetchImage(t.Context(), i); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("without a worker: %v", err)
	}
	urls = []string{serveEmpty(t).url}
	if has, err := p.HasNeeded(t.Context(), i); has || err != nil {
		t.Errorf("got %v, %v", has, err)
	}
	if err := p.FetchImage(t.Context(), i); err == nil || !strings.Contains(err.Error(), urls[0]) {
		t.Errorf("got %v", err)
	}
}
