package registry

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fumehood/fumehood"
)

// serve runs a registry that answers requests for manifests by manifests, if that is set.
func serve(t *testing.T, manifests http.HandlerFunc) string {
	t.Helper()
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if manifests != nil && strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
			manifests(w, r)
			return
		}
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestLayers(t *testing.T) {
	t.Parallel()
	layer, err := random.Layer(1000, types.DockerLayer)
	if err != nil {
		t.Fatal(err)
	}
	other, err := random.Layer(2000, types.DockerLayer)
	if err != nil {
		t.Fatal(err)
	}
	var index v1.ImageIndex = empty.Index
	want := map[string][]v1.Layer{"linux/amd64": {layer, other, layer}, "linux/arm64": {other}}
	for platform, layers := range want {
		img, err := mutate.AppendLayers(empty.Image, layers...)
		if err != nil {
			t.Fatal(err)
		}
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
	}
	ref := serve(t, nil) + "/x:1"
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(r, index); err != nil {
		t.Fatal(err)
	}
	describe := func(l v1.Layer) Layer {
		digest, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		size, err := l.Size()
		if err != nil {
			t.Fatal(err)
		}
		return Layer{digest.String(), size}
	}
	for platform, layers := range map[string][]v1.Layer{"linux/amd64": {layer, other}, "linux/arm64": {other}} {
		var wanted []Layer
		for _, l := range layers {
			wanted = append(wanted, describe(l))
		}
		if got, err := (Access{}).Layers(t.Context(), ref, platform); err != nil || fmt.Sprint(got) != fmt.Sprint(wanted) {
			t.Errorf("%s: got %v, %v; want %v", platform, got, err, wanted)
		}
	}
	if _, err := (Access{}).Layers(t.Context(), ref, "linux/s390x"); err == nil {
		t.Error("an image for another platform is found")
	}
}

// What a hostile registry sends is refused, and holds nobody up.
func TestLayers_hostile(t *testing.T) {
	t.Parallel()
	config := `"config":{"mediaType":"application/vnd.docker.container.image.v1+json","digest":"sha256:` + strings.Repeat("a", 64) + `","size":2}`
	layer := func(size string) string {
		return `{"digest":"sha256:` + strings.Repeat("b", 64) + `","size":` + size + `}`
	}
	manifest := func(layers string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"schemaVersion":2,%s,"layers":[%s]}`, config, layers)
		}
	}
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat(" ", 64<<10)); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		class  error
		says   string
	}{
		"huge":         {manifest(layer("1") + strings.Repeat(" ", maxManifest)), fumehood.ErrLimit, "more than 4194304 bytes"},
		"endless":      {endless, fumehood.ErrLimit, "more than 4194304 bytes"},
		"many layers":  {manifest(strings.Repeat(layer("1")+",", maxLayers) + layer("1")), fumehood.ErrLimit, "128 layers"},
		"negative":     {manifest(layer("-1")), fumehood.ErrLimit, "-1 bytes"},
		"overflow":     {manifest(layer("9223372036854775807") + "," + layer("1")), fumehood.ErrLimit, "invalid size"},
		"sum too high": {manifest(layer("1099511627776") + "," + layer("1")), fumehood.ErrLimit, "invalid size"},
		"no JSON":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, fumehood.ErrInfrastructure, ""},
		"no image":     {http.NotFound, fumehood.ErrConfig, "404"},
		"silent":       {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, fumehood.ErrUnavailable, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			ref := serve(t, c.answer) + "/x:1"
			got, err := Access{Patience: 2 * time.Second}.Layers(t.Context(), ref, "linux/amd64")
			if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), ref) {
				t.Errorf("got %v, %v", got, err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// An answer of exactly the maximum size is whole.
func TestBounded_most(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 99, 100} {
		b := &boundedAnswer{io.NopCloser(strings.NewReader(strings.Repeat("x", int(size)))), 100, 100}
		if got, err := io.ReadAll(b); err != nil || int64(len(got)) != size {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	b := &boundedAnswer{io.NopCloser(strings.NewReader(strings.Repeat("x", 101))), 100, 100}
	if got, err := io.ReadAll(b); !errors.Is(err, fumehood.ErrLimit) || len(got) != 100 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}
