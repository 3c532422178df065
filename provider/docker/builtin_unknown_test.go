package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
)

// An unknown name of a built-in image is an error before any request: the provider here has no daemon.
func TestBuiltin_unknown(t *testing.T) {
	p := withoutDaemon(nil)
	check := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "no built-in image ") || !strings.Contains(err.Error(), "(there is fumehood-builtin/agent)") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, ref := range []string{"fumehood-builtin/nope", "docker.io/fumehood-builtin/nope", "fumehood-builtin/agent:v2", "fumehood-builtin/agent@sha256:" + strings.Repeat("0", 64), "fumehood-builtin/"} {
		_, err := p.images.Get(t.Context(), ref)
		check("image "+ref, err)
		_, err = p.PullImage(t.Context(), ref)
		check("pull "+ref, err)
		for name, s := range map[string]image.Source{
			"a service": {Service: "a", Image: ref, Pull: image.PullNever},
			"FROM":      {Service: "a", Build: &image.Build{Inline: "FROM " + ref}},
			"COPY":      {Service: "a", Build: &image.Build{Inline: "FROM x\nCOPY --from=" + ref + " / /"}},
			"an ARG":    {Service: "a", Build: &image.Build{Inline: "ARG BASE\nFROM $BASE", Args: map[string]string{"BASE": ref}}},
		} {
			_, err := p.images.Prepare(t.Context(), []image.Source{s}, &fumehood.Compose{}, provider.PrepareOptions{})
			check(name+" "+ref, err)
			var e *fumehood.Error
			if errors.As(err, &e) && e.Service != "a" {
				t.Errorf("%s: the error is about service %q", name, e.Service)
			}
		}
	}
	spec := fumehood.Spec{Name: "box", Compose: &fumehood.Compose{Content: "services: {a: {image: i, volumes: [{type: image, source: fumehood-builtin/nope, target: /x}]}}"}}
	sb := &sandbox{Sandbox: box.Sandbox{Spec: spec, Rec: provider.NewRecorder(&spec)}, p: p}
	err := sb.Prepare(t.Context())
	check("a mounted image", err)
	if _, is, err := p.builtin("fumehood-builtin"); is || err != nil {
		t.Errorf("another image: %t, %v", is, err)
	}
}
