package session_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/fake"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/test/dockertest"
)

// built returns a place and a spec whose image is built from fumehood-test/busybox, with the content says in
// /built. More are lines of the section docker. The images are removed when the test ends.
func built(t *testing.T, says string, more ...string) (*place, *spec.Environment) {
	t.Helper()
	p := inDocker(t)
	name := "test-" + strings.ToLower(rand.Text()[:10])
	dir := folder(t, map[string]string{
		"Dockerfile": "FROM fumehood-test/busybox\nCOPY built /built\n", "built": says,
		"env.yaml": "type: docker\nname: " + name + "\ndocker:\n  build: {}\n" + strings.Join(more, "\n") + "\n",
	})
	env, err := spec.Load(filepath.Join(dir, "env.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	images := dockertest.Provider(t, docker.Options{})
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		all, err := images.Images(ctx)
		for _, image := range all {
			if image.Mark.Environment == name {
				err = errors.Join(err, images.RemoveImage(ctx, image))
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	return p, env
}

func rewrite(t *testing.T, env *spec.Environment, says string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(env.File), "built"), []byte(says), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSpawn_buildsImage(t *testing.T) {
	t.Parallel()
	p, env := built(t, "one")
	s := p.open(t, env, session.Agent, nil)
	read := func(s *session.Session, opts session.SpawnOptions) string {
		t.Helper()
		res, err := s.Exec(t.Context(), opts, sh("cat /built; pwd"))
		if err != nil {
			t.Fatal(err)
		}
		return res.Stdout.Text()
	}
	if got := read(s, session.SpawnOptions{Image: "fumehood-test/python"}); got != "/workspace\n" || strings.Contains(p.log.String(), "building") {
		t.Errorf("with the spawn's image: %q, %s", got, p.log)
	}
	if got := read(s, session.SpawnOptions{}); got != "one/workspace\n" || !strings.Contains(p.log.String(), "building fumehood:"+env.Name) {
		t.Errorf("built: %q, %s", got, p.log)
	}
	p.log.Reset()
	if got := read(p.open(t, env, session.Evaluation, nil), session.SpawnOptions{}); got != "one/workspace\n" || strings.Contains(p.log.String(), "building") {
		t.Errorf("another session has rebuilt the image: %q, %s", got, p.log)
	}
	rewrite(t, env, "two")
	if got := read(p.open(t, env, session.Agent, nil), session.SpawnOptions{}); got != "two/workspace\n" {
		t.Errorf("after a change: %q", got)
	}
	if got := read(s, session.SpawnOptions{}); got != "one/workspace\n" {
		t.Errorf("the first session now has %q", got)
	}
}

func TestSpawn_builtImageName(t *testing.T) {
	t.Parallel()
	tag := "test-of-fumehood:" + strings.ToLower(rand.Text()[:10])
	p, env := built(t, "x", "  image: "+tag, "  user: '1000'")
	spawn(t, p.open(t, env, session.Agent, nil), session.SpawnOptions{})
	if _, found, err := dockertest.Provider(t, docker.Options{}).FindImage(t.Context(), tag); found || err != nil {
		t.Errorf("the image has the name: %v, %v", found, err)
	}
	env.AllowUnsafe = true
	r := spawn(t, p.open(t, env, session.Agent, nil), session.SpawnOptions{})
	if res := execute(t, r, sh("cat /built; id -u")); res.Stdout.Text() != "x1000\n" {
		t.Errorf("%q", outputs(res))
	}
	image, found, err := dockertest.Provider(t, docker.Options{}).FindImage(t.Context(), tag)
	if err != nil || !found || image.ID != r.Service().ServiceInfo().Image {
		t.Errorf("%+v, %v, %v", image, found, err)
	}
}

func TestSpawn_buildFails(t *testing.T) {
	t.Parallel()
	p, env := built(t, "x")
	if err := os.WriteFile(filepath.Join(filepath.Dir(env.File), "Dockerfile"), []byte("FROM fumehood-test/busybox\nRUN exit 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := p.open(t, env, session.Agent, nil)
	if _, err := s.Spawn(t.Context(), session.SpawnOptions{}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "exit 3") {
		t.Errorf("%v", err)
	}
	p.provider = fake.New(fake.Options{})
	s = p.open(t, env, session.Agent, nil)
	if _, err := s.Spawn(t.Context(), session.SpawnOptions{}); !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "docker.build") {
		t.Errorf("a provider that cannot build: got %v", err)
	}
}
