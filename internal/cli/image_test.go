package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestImageBuild_name builds specs whose docker.image is somebody else's name, one of Fumehood's own, and a free one.
func TestImageBuild_name(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	first, dir := program(t)
	ctx := context.WithoutCancel(t.Context())
	const theirs, own = "fh-name-of-another:cli-test", "fh-name-of-ours:cli-test"
	base, found, err := e.Image(ctx, "fumehood-test/busybox")
	if err != nil || !found {
		t.Fatalf("no test image: %v", err)
	}
	if err := e.Tag(ctx, base.ID, theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Untag(ctx, theirs); err != nil {
			t.Error(err)
		}
	})
	build := func(image, text string, flags ...string) (string, error) {
		t.Helper()
		spec := "type: docker\nname: fh-names\ndocker: {image: \"" + image + "\", build: {context: .}}\n"
		for name, text := range map[string]string{"env.yaml": spec, "Dockerfile": text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "fumehood", append([]string{"image", "build", "env.yaml"}, flags...)...)
		cmd.Env, cmd.Dir = first.Env, dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	idOf := func(name string) string {
		t.Helper()
		image, found, err := e.Image(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			return ""
		}
		return image.ID
	}
	t.Cleanup(func() {
		cmd := exec.CommandContext(ctx, "fumehood", "image", "prune", "env.yaml", "--all")
		cmd.Env, cmd.Dir = first.Env, dir
		if out, err := cmd.CombinedOutput(); err != nil || idOf(own) != "" {
			t.Errorf("%v\n%s", err, out)
		}
	})
	const one, two = "FROM fumehood-test/busybox\nENV A=1\n", "FROM fumehood-test/busybox\nENV A=2\n"
	// No name here is one that other tests use: where the refusal is broken, it moves.
	for _, c := range []struct{ image, says string }{
		{theirs, "it is the name of an image that this user's Fumehood did not build"},
		{"docker.io/library/" + theirs, "it is the name of an image that this user's Fumehood did not build"},
		{"fumehood-fh-names:cli-test", "names that begin with fumehood are for Fumehood's own images"},
		{"fumehood-build:fh-names", "names that begin with fumehood are for Fumehood's own images"},
	} {
		was := idOf(c.image)
		if out, err := build(c.image, one, "--allow-unsafe"); err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v\n%s", c.image, err, out)
		}
		if now := idOf(c.image); now != was {
			t.Errorf("%s was %q and is %q", c.image, was, now)
		}
	}
	// One that nobody has could be anybody's: the second one builds what says "# syntax=docker/dockerfile:1.987".
	for _, image := range []string{own, "docker/dockerfile:1.987", theirs} {
		was := idOf(image)
		if out, err := build(image, one); err != nil {
			t.Errorf("%s: %v\n%s", image, err, out)
		}
		if now := idOf(image); now != was {
			t.Errorf("%s was %q and is %q", image, was, now)
		}
	}
	for _, text := range []string{one, two} { // the second time it is the name of what was built here
		if out, err := build(own, text, "--allow-unsafe"); err != nil || idOf(own) == "" {
			t.Errorf("%v\n%s", err, out)
		}
	}
}
