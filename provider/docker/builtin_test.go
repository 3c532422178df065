package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
)

func TestBuiltinImages(t *testing.T) {
	t.Parallel()
	const name = "fumehood-builtin/agent"
	b := newBuilder(t, Options{DefaultImage: testBase})
	ctx := t.Context()
	remove := func() {
		image, found, err := b.engine.Image(ctx, name)
		if err == nil && found {
			err = b.engine.Remove(ctx, engine.Object{Kind: engine.ImageKind, ID: image.ID, Name: name})
		}
		if err != nil {
			t.Error(err)
		}
	}
	remove()
	defer remove()
	state := func() BuiltinImage {
		t.Helper()
		all, err := b.BuiltinImages(ctx)
		if err != nil || len(all) != 1 || all[0].Name != name || !strings.HasPrefix(all[0].About, "The default image for an agent") {
			t.Fatalf("got %+v, %v", all, err)
		}
		return all[0]
	}
	if s := state(); s.UpToDate || s.Image.ID != "" || b.ran("") > 0 {
		t.Errorf("before: got %+v", s)
	}
	whoami := func(p *builder, image string) string {
		t.Helper()
		sb, err := p.Start(ctx, fumehood.Spec{Image: image})
		if err != nil {
			t.Fatal(err)
		}
		res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"sh", "-c", "id -un; pwd; echo $HOME; touch mine && ls"}})
		if err = errors.Join(err, sb.Close(ctx)); err != nil {
			t.Fatal(err)
		}
		return res.Stdout.Text()
	}
	for range 2 {
		if got := whoami(b, name); got != "agent\n/workspace\n/workspace\nmine\n" {
			t.Errorf("got %q", got)
		}
	}
	if n := b.ran("RUN grep"); n != 1 {
		t.Errorf("it was built %d times", n)
	}
	first := state()
	if !first.UpToDate {
		t.Errorf("afterwards: got %+v", first)
	}

	// With another default image, it is a different image.
	other := newBuilder(t, Options{DefaultImage: b.built(t, b.source("web", image.Build{Inline: "FROM " + testBase + "\nRUN echo other >/other\n"})).Ref})
	s := other.source("app", image.Build{Inline: "FROM " + name + ":latest\nRUN cat /other >app\n"})
	image := other.built(t, s)
	if got := other.reads(t, image.Ref, "/workspace/app"); got != "other\n" {
		t.Errorf("an image built on it has %q", got)
	}
	if s := state(); s.UpToDate || s.Image.ID == first.Image.ID {
		t.Errorf("after another image was built: got %+v", s)
	}
	if err := b.engine.Untag(ctx, first.Image.Tags[0]); err != nil && !errors.Is(err, fumehood.ErrUnavailable) {
		t.Error(err)
	}
}
