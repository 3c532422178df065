package docker

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/test/filetest"
)

// Progress reports name the project of a build, and not only its service, which is often called default.
func TestImageBuild_title(t *testing.T) {
	dir := filetest.Lay(t, map[string]string{
		"shop/compose.yaml": "services:\n  default: {build: .}\n  web: {image: shop-web, build: {dockerfile_inline: FROM x}}\n",
		"shop/Dockerfile":   "FROM x\n", "shop/web.Dockerfile": "FROM x\n",
	})
	shop := filepath.Join(dir, "shop")
	p := &Provider{opts: Options{DefaultImage: "base:1"}}
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
		plan, err := p.planImages(engine.Server{}, project.Sources())
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range plan.builds {
			if got := n.build.title(); len(plan.builds) != len(c.want) || got != c.want[i] {
				t.Errorf("got %s, want %q", got, c.want)
			}
		}
	}
}

// A project without a folder is built, and its progress reports say which build it is.
func TestBuild_contentAlone(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	var mu sync.Mutex
	seen := map[string]bool{}
	b.opts.Progress = func(ev provider.Progress) {
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
