package envimage_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/envimage"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/test/dockertest"
)

// environment writes a spec with a unique name and files next to it. At the end of the test it removes the
// environment's images.
func environment(t *testing.T, p *docker.Provider, text string, files map[string]string) *spec.Environment {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	name := "test-" + strings.ToLower(rand.Text()[:10])
	file := filepath.Join(dir, "env.yaml")
	write(t, dir, map[string]string{"env.yaml": "type: docker\nname: " + name + "\n" + text})
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		eventually(t, func() error {
			images, err := p.Images(ctx)
			for _, image := range images {
				if image.Mark.Environment == name {
					err = errors.Join(err, p.RemoveImage(ctx, image))
				}
			}
			return err
		})
	})
	return load(t, file)
}

// eventually calls f until it returns no error: after a canceled build, the Engine ends the step later.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			t.Error(err)
			return
		}
	}
}

// labeled returns a label for a Dockerfile. At the end of the test it checks that the Engine has removed the
// containers of the build's steps, and removes the images of failed builds.
func labeled(t *testing.T) string {
	t.Helper()
	docker := dockertest.Engine(t)
	label := "fumehood-test.build=" + strings.ToLower(rand.Text()[:10])
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		eventually(t, func() error {
			objects, err := docker.Objects(ctx, label)
			for _, o := range objects {
				if o.Kind == engine.Container {
					err = errors.Join(err, errors.New("the container of a step is left: "+o.Name))
				}
			}
			if err != nil {
				return err
			}
			for _, o := range objects {
				err = errors.Join(err, docker.Remove(ctx, o))
			}
			return err
		})
	})
	return "LABEL " + label + "\n"
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func load(t *testing.T, file string) *spec.Environment {
	t.Helper()
	e, err := spec.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func build(t *testing.T, p *docker.Provider, e *spec.Environment) envimage.Built {
	t.Helper()
	built, err := envimage.Build(t.Context(), p, e, nil)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// output runs a script in a new sandbox of the image and returns its output.
func output(t *testing.T, p *docker.Provider, image, script string) string {
	t.Helper()
	sb, err := p.Start(t.Context(), fumehood.Spec{Image: image})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if !res.Success() {
		t.Fatalf("%q: %s %d: %s%s", script, res.Outcome, res.ExitCode, res.Stdout.Text(), res.Stderr.Text())
	}
	return res.Stdout.Text()
}

func TestBuild_variables(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	e := environment(t, p, `
docker: {image: fumehood-test/busybox, workdir: "/w o/$d", user: "1000:1000"}
environment: {env: {A: "x \"q\" 's' $HOME ${HOME} \\n # \\\nline 2\\", EMPTY: "", LAST: "%{}"}}
`, nil)
	built := build(t, p, e)
	if built.UpToDate || built.Tags[0] != "fumehood:"+e.Name {
		t.Errorf("got %+v", built)
	}
	got := output(t, p, built.Tags[0], `printf '%s|' "$A" "$EMPTY" "${EMPTY-unset}" "$LAST" "$PWD"; echo x >may-write; ls`)
	want := "x \"q\" 's' $HOME ${HOME} \\n # \\\nline 2\\||" + "|%{}|/w o/$d|may-write\n"
	if got != want {
		// It doesn't matter who the image's own user is: it is root.
		t.Errorf("got %q, want %q", got, want)
	}
}

// bothBuilders runs f with each of the builders that a user's Dockerfile may get, in parallel.
func bothBuilders(t *testing.T, f func(t *testing.T, p *docker.Provider)) {
	t.Parallel()
	for name, classic := range map[string]bool{"BuildKit": false, "the Engine's own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, dockertest.Provider(t, docker.Options{ClassicBuilder: classic, NoSweep: true}))
		})
	}
}

func TestBuild_buildKit(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	e := environment(t, p, "docker: {build: {args: {BASE: fumehood-test/busybox}}}\nenvironment: {env: {A: '1'}}\n", map[string]string{
		"Dockerfile": "ARG BASE\nFROM $BASE AS made\nRUN echo made >/made\nFROM $BASE\nARG TARGETOS\n" +
			"RUN --mount=from=made,target=/from cat /from/made >/found; echo $TARGETOS >>/found\n",
	})
	built := build(t, p, e)
	if got := output(t, p, built.Tags[0], "cat /found; echo $A $PWD"); got != "made\nlinux\n1 /workspace\n" {
		t.Errorf("got %q", got)
	}
	if again := build(t, p, e); !again.UpToDate || again.ID != built.ID {
		t.Errorf("nothing has changed, and it is %+v", again)
	}
	if err := p.RemoveImage(t.Context(), provider.Image{ID: built.ID}); err != nil {
		t.Fatal(err)
	}
	_, err := envimage.Build(t.Context(), dockertest.Provider(t, docker.Options{ClassicBuilder: true, NoSweep: true}), e, nil)
	if !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "line 6: RUN --mount") {
		t.Errorf("without BuildKit: %v", err)
	}
}

func TestBuild_ignoredDockerfile(t *testing.T) {
	bothBuilders(t, func(t *testing.T, p *docker.Provider) {
		text := "FROM fumehood-test/busybox\nCOPY . /here\n"
		e := environment(t, p, "docker: {build: {}}\n", map[string]string{".dockerignore": "Dockerfile\n.dockerignore\n*.yaml", "kept": ""})
		for _, word := range []string{"one", "two"} { // only the Dockerfile changes
			write(t, filepath.Dir(e.File), map[string]string{"Dockerfile": text + "RUN echo " + word + " >/word\n"})
			if got := output(t, p, build(t, p, e).Tags[0], "ls -A /here; cat /word"); got != "kept\n"+word+"\n" {
				t.Errorf("got %q", got)
			}
		}
	})
}

func TestBuild_upToDate(t *testing.T) {
	bothBuilders(t, isBuiltAgainOnlyWhenItsInputsChange)
}

func isBuiltAgainOnlyWhenItsInputsChange(t *testing.T, p *docker.Provider) {
	e := environment(t, p, `
docker: {build: {args: {BASE: fumehood-test/busybox}}}
environment: {env: {A: "1"}}
`, map[string]string{
		"Dockerfile": "ARG BASE\nFROM $BASE\nARG BASE\nCOPY . /here\nRUN echo $BASE >/base\n", ".dockerignore": "*.log\n", "data": "one", "x.log": "1",
	})
	first := build(t, p, e)
	if got := output(t, p, first.Tags[0], "cat /here/data /base; ls /here; echo $A"); got != "onefumehood-test/busybox\nDockerfile\ndata\nenv.yaml\n1\n" {
		t.Errorf("got %q", got)
	}
	dir := filepath.Dir(e.File)
	write(t, dir, map[string]string{"x.log": "2"})
	if again := build(t, p, e); !again.UpToDate || again.ID != first.ID {
		t.Errorf("nothing has changed, and it is %+v", again)
	}
	write(t, dir, map[string]string{"data": "two"})
	second := build(t, p, e)
	if second.UpToDate || second.ID == first.ID {
		t.Errorf("a file has changed, and it is %+v", second)
	}
	if got := output(t, p, second.Tags[0], "cat /here/data"); got != "two" {
		t.Errorf("got %q", got)
	}
	e.Environment.Env["A"] = "2"
	if third := build(t, p, e); third.UpToDate || third.ID == second.ID {
		t.Errorf("a variable has changed, and it is %+v", third)
	}
}

func TestBuild_failedStep(t *testing.T) {
	bothBuilders(t, tellsWhatAFailedStepPrintedLast)
}

func tellsWhatAFailedStepPrintedLast(t *testing.T, p *docker.Provider) {
	e := environment(t, p, "docker: {build: {}}\n", map[string]string{
		"Dockerfile": "FROM fumehood-test/busybox\n" + labeled(t) + "RUN true\nRUN { echo one; echo two; } >&2; exit 7\n",
	})
	_, err := envimage.Build(t.Context(), p, e, nil)
	if !errors.Is(err, fumehood.ErrConfig) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"RUN { echo one", "exit code 7", "it printed last:\n  one\n  two"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if _, found, err := p.FindImage(t.Context(), "fumehood:"+e.Name); found || err != nil {
		t.Errorf("there is an image: %v", err)
	}
}

func TestBuild_canceled(t *testing.T) {
	bothBuilders(t, endsWhenItIsCanceled)
}

func endsWhenItIsCanceled(t *testing.T, p *docker.Provider) {
	e := environment(t, p, "docker: {build: {}}\n", map[string]string{
		"Dockerfile": "FROM fumehood-test/busybox\n" + labeled(t) + "RUN sleep 1000\n",
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("enough")
	_, err := envimage.Build(ctx, p, e, func(_, step string) {
		if strings.Contains(step, "RUN") {
			cancel(why)
		}
	})
	if !errors.Is(err, fumehood.ErrCanceled) || !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

const judged = `
docker: {image: fumehood-test/python, user: "1000:1000"}
environment: {env: {GREETING: hello}}
setup:
  commands: ["cd src", "export WHO=world"]
  eval_commands: ["printf '%s %s %s' $GREETING $WHO $(id -u) >made"]
`

func TestBuildSubmission(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	e := environment(t, p, judged, nil)
	dir := t.TempDir()
	write(t, dir, map[string]string{"work/src/main.py": "print(open('src/made').read(), open('/static/tests/t').read())", "assets/tests/t": "asset"})
	s := envimage.Submission{Workspace: filepath.Join(dir, "work"), Assets: filepath.Join(dir, "assets")}
	built, err := envimage.BuildSubmission(t.Context(), p, e, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(built.Tags[0], "fumehood:"+e.Name+"-submission-") {
		t.Errorf("it is called %q", built.Tags)
	}
	got := output(t, p, built.Tags[0], "python3 src/main.py; id -u; touch src/may-write may-write")
	if want := "hello world 1000 asset\n1000\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if again, err := envimage.BuildSubmission(t.Context(), p, e, s, nil); err != nil || !again.UpToDate {
		t.Errorf("nothing has changed, and it is %+v, %v", again, err)
	}
	write(t, dir, map[string]string{"work/src/main.py": "print(1)"})
	other, err := envimage.BuildSubmission(t.Context(), p, e, s, nil)
	if err != nil || other.UpToDate || other.Tags[0] == built.Tags[0] {
		t.Errorf("a file has changed, and it is %+v, %v", other, err)
	}
}

func TestBuildSubmission_setup(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	s := envimage.Submission{Workspace: t.TempDir()}
	const image = "docker: {image: fumehood-test/busybox}\n"
	env := environment(t, p, image, nil) // each case is a submission to it
	build(t, p, env)
	for name, c := range map[string]struct {
		setup string
		class error
		says  string
	}{
		"a failure, fast": {"{fail_fast: true, commands: ['echo no; false', 'echo never']}", fumehood.ErrConfig, "exit code 1; it printed last:\n  no"},
		"an exit":         {"{commands: ['exit 5']}", fumehood.ErrConfig, "exit code 5"},
		"too slow":        {"{commands: ['sleep 1000'], timeout: 3s}", fumehood.ErrLimit, "within 3s"},
		"a failure":       {"{commands: ['false']}", nil, ""},
		"no network":      {"{commands: ['test \"$(ls /sys/class/net)\" = lo || exit 6']}", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"env.yaml": "type: docker\nname: " + env.Name + "\n" + image + "setup: " + c.setup + "\n"})
			e := load(t, filepath.Join(dir, "env.yaml"))
			_, err := envimage.BuildSubmission(t.Context(), p, e, s, nil)
			if !errors.Is(err, c.class) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// states returns the states of an environment's images, by tag.
func states(t *testing.T, p *docker.Provider, e *spec.Environment) map[string]envimage.State {
	t.Helper()
	listed, err := envimage.List(t.Context(), p, e)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]envimage.State{}
	for _, l := range listed {
		got[strings.Join(l.Tags, " ")] = l.State
	}
	return got
}

func TestPrune(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	e := environment(t, p, "docker: {image: fumehood-test/busybox}\nenvironment: {env: {A: '1'}}\n", nil)
	tag := "fumehood:" + e.Name
	build(t, p, e)
	if got := states(t, p, e); len(got) != 1 || got[tag] != envimage.Current {
		t.Errorf("after the build: %q", got)
	}
	sb, err := p.Start(t.Context(), fumehood.Spec{Image: tag})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context()) // may be called twice
	e.Environment.Env["A"] = "2"
	if got := states(t, p, e); got[tag] != envimage.Outdated {
		t.Errorf("after a change: %q", got)
	}
	prune := func(all, dryRun bool) (removed, would int) {
		t.Helper()
		pruned, err := envimage.Prune(t.Context(), p, e, all, dryRun)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range pruned {
			if one.Removed {
				removed++
			}
			if one.Remove {
				would++
			}
		}
		return removed, would
	}
	if removed, would := prune(true, false); removed != 0 || would != 0 {
		t.Errorf("an image in use was removed: %d, %d", removed, would)
	}
	build(t, p, e) // moves the tag from the image in use
	if got := states(t, p, e); len(got) != 2 || got[tag] != envimage.Current || got[""] != envimage.Outdated {
		t.Errorf("after the second build: %q", got)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if removed, would := prune(false, true); removed != 0 || would != 1 {
		t.Errorf("a dry run: %d removed, %d to be", removed, would)
	}
	if removed, _ := prune(false, false); removed != 1 {
		t.Errorf("%d removed, want the one without a tag", removed)
	}
	if got := states(t, p, e); len(got) != 1 || got[tag] != envimage.Current {
		t.Errorf("after pruning: %q", got)
	}
	if removed, _ := prune(true, false); removed != 1 {
		t.Error("--all did not remove an image that is up to date")
	}
}

func TestPrune_foreignTag(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	docker := dockertest.Engine(t)
	e := environment(t, p, "docker: {image: fumehood-test/busybox}\n", nil)
	built := build(t, p, e)
	foreign := "fumehood-test-theirs:" + e.Name
	if err := docker.Tag(t.Context(), built.ID, foreign); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	defer func() {
		if err := docker.Untag(ctx, foreign); err != nil {
			t.Error(err)
		}
	}()
	leftovers, err := p.Cleanup(t.Context(), provider.CleanupOptions{Caches: true, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leftovers {
		if l.Kind == "image" && (l.Name == foreign || l.Name == built.Tags[0]) {
			t.Errorf("cleanup would remove %s: %+v", l.Name, l)
		}
	}
	if _, err := envimage.Prune(t.Context(), p, e, true, false); err != nil {
		t.Fatal(err)
	}
	if _, found, err := p.FindImage(t.Context(), built.Tags[0]); found || err != nil {
		t.Errorf("our tag is still there, %v", err)
	}
	image, found, err := p.FindImage(t.Context(), foreign)
	if !found || err != nil || image.Mark != (provider.ImageMark{}) {
		t.Errorf("theirs: %v, %+v, %v", found, image, err)
	}
}

func TestCleanup_caches(t *testing.T) {
	t.Parallel()
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	e := environment(t, p, "docker: {image: fumehood-test/busybox}\n", nil)
	built := build(t, p, e)
	sb, err := p.Start(t.Context(), fumehood.Spec{Image: built.Tags[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context())
	for _, caches := range []bool{false, true} {
		found, err := p.Cleanup(t.Context(), provider.CleanupOptions{Caches: caches, DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]provider.Leftover{}
		for _, l := range found {
			if l.Name == built.Tags[0] || l.Kind == "container" && l.Sandbox == sb.Info().Name {
				seen[l.Kind] = l
			}
		}
		if l := seen["image"]; !l.Cache || l.Remove != caches {
			t.Errorf("caches %v: the image is %+v", caches, l)
		}
		if l := seen["container"]; l.Cache || l.Remove || l.Owner != "alive" {
			t.Errorf("caches %v: the container is %+v", caches, l)
		}
	}
}
