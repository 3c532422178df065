package docker

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/test/filetest"
)

// everyImage is a store that has every image, and builds at once.
type everyImage struct {
	mu    sync.Mutex
	built map[string]bool
}

// withoutDaemon returns a provider that prepares images in everyImage.
func withoutDaemon(progress func(provider.Progress)) *Provider {
	p, e := &Provider{opts: Options{DefaultImage: "base:1"}}, &everyImage{built: map[string]bool{}}
	p.images = image.Preparer{Store: e, Builder: e, Builtin: p.builtin, Logger: slog.New(slog.DiscardHandler), Progress: func(ev provider.Progress) {
		e.mu.Lock()
		defer e.mu.Unlock()
		progress(ev)
	}}
	return p
}

func (*everyImage) Arch(context.Context) (string, error) { return "amd64", nil }

func (*everyImage) Find(_ context.Context, ref string) (image.Image, bool, error) {
	return image.Image{Ref: ref, ID: "sha256:1"}, true, nil
}

func (*everyImage) Fetch(context.Context, string, string) error { panic("it has every image") }

func (*everyImage) Accepts(context.Context, image.Source, image.Dockerfile) (bool, error) {
	return true, nil
}

func (e *everyImage) FindBuilt(_ context.Context, o image.Order) (image.Image, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return image.Image{Ref: o.Tags[0], ID: "sha256:2"}, e.built[o.Inputs], nil
}

func (e *everyImage) Build(_ context.Context, o image.Order, _ *image.Tree) error {
	o.Report("step")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.built[o.Inputs] = true
	return nil
}

// Progress reports name the project of a build, and not only its service, which is often called default.
func TestImageBuild_title(t *testing.T) {
	dir := filetest.Lay(t, map[string]string{
		"shop/compose.yaml": "services:\n  default: {build: .}\n  web: {image: shop-web, build: {dockerfile_inline: FROM x}}\n",
		"shop/Dockerfile":   "FROM x\n", "shop/web.Dockerfile": "FROM x\n",
	})
	shop := filepath.Join(dir, "shop")
	for _, c := range []struct {
		src  fumehood.Compose
		want []string
	}{
		{fumehood.Compose{Files: []string{filepath.Join(shop, "compose.yaml")}}, []string{"shop/default", "shop/web"}},
		{fumehood.Compose{Dockerfile: filepath.Join(shop, "Dockerfile")}, []string{"shop/Dockerfile"}},
		{fumehood.Compose{Dockerfile: filepath.Join(shop, "web.Dockerfile"), Dir: shop}, []string{"shop/web.Dockerfile"}},
		{fumehood.Compose{Content: "services: {default: {build: {dockerfile_inline: FROM x}}}"}, []string{"Compose.Content@22de159ea067/default"}},
		{fumehood.Compose{Content: "services: {a: {build: {dockerfile_inline: FROM fumehood-builtin/agent}}}", Dir: shop}, []string{"fumehood-builtin/agent", "shop/a"}},
	} {
		project, err := compose.Load(t.Context(), "box", c.src)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		p := withoutDaemon(func(ev provider.Progress) { got = append(got, ev.Image) })
		if _, err := p.images.Prepare(t.Context(), project.Sources(), &fumehood.Compose{}, provider.PrepareOptions{}); err != nil {
			t.Fatal(err)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A project without a folder is built, and its progress reports say which build it is.
func TestBuild_contentAlone(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	var mu sync.Mutex
	seen := map[string]bool{}
	b.images.Progress = func(ev provider.Progress) {
		mu.Lock()
		defer mu.Unlock()
		seen[ev.Image] = ev.Build
	}
	build := fmt.Sprintf("{dockerfile_inline: \"FROM %s\\nRUN echo %s >/here\", labels: {fumehood-test: %[2]s}}", testBase, b.mark)
	sb, err := b.Start(t.Context(), fumehood.Spec{Compose: &fumehood.Compose{Content: "services: {default: {command: sleep infinity, build: " + build + "}}"}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := sb.ReadFile(t.Context(), "/here", fumehood.ReadOptions{})
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err != nil || string(text) != b.mark+"\n" {
		t.Errorf("got %q, %v", text, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for image, builds := range seen {
		if !builds || !strings.HasPrefix(image, "Compose.Content@") || !strings.HasSuffix(image, "/default") {
			t.Errorf("reported as %q", image)
		}
	}
	if len(seen) == 0 {
		t.Error("no progress was reported")
	}
}
