package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/test/filetest"
	"github.com/fumehood/fumehood/test/tier"
)

const testBase = "fumehood-test/busybox"

// builder is a provider that records what it builds.
type builder struct {
	*Provider
	mark string // label value of everything that it builds here

	mu    sync.Mutex
	steps []string
}

// newBuilder connects a provider, and removes at the end what was built with its mark.
func newBuilder(t *testing.T, opts Options) *builder {
	t.Helper()
	tier.NeedDocker(t)
	b := &builder{mark: strings.ToLower(rand.Text()[:12])}
	opts.Progress = func(ev provider.Progress) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if ev.Build {
			b.steps = append(b.steps, ev.Status)
		}
	}
	opts.NoSweep = true
	p, err := New(t.Context(), opts)
	if err != nil {
		tier.Missing(t, tier.Quick, err)
	}
	b.Provider = p
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		err := b.removeImages(ctx)
		if err = errors.Join(err, p.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	return b
}

// removeImages removes the images with the mark. A base image can only be removed after the images built on it, which
// takes a busy daemon a while.
func (b *builder) removeImages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		images, err := b.engine.Objects(ctx, "fumehood-test="+b.mark, engine.ImageKind)
		if err == nil {
			err = removeAll(ctx, b.engine, images)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// ran counts the build steps whose text contains part.
func (b *builder) ran(part string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.steps {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

// source returns a service with a build, whose image no other test has.
func (b *builder) source(service string, build image.Build) image.Source {
	build.Labels = map[string]string{"fumehood-test": b.mark}
	if build.Dockerfile == "" {
		build.Dockerfile = "Dockerfile"
	}
	return image.Source{Service: service, Pull: image.PullMissing, Build: &build}
}

// built prepares one service and returns its image.
func (b *builder) built(t *testing.T, s image.Source) image.Image {
	t.Helper()
	images, err := b.images.Prepare(t.Context(), []image.Source{s}, &fumehood.Compose{}, provider.PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return images[s.Service]
}

// reads starts a sandbox with an image and returns a file's content.
func (b *builder) reads(t *testing.T, image, file string) string {
	t.Helper()
	sb, err := b.Start(t.Context(), fumehood.Spec{Image: image})
	if err != nil {
		t.Fatal(err)
	}
	text, err := sb.ReadFile(t.Context(), file, fumehood.ReadOptions{})
	if err = errors.Join(err, sb.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func bothBuilders(t *testing.T, f func(t *testing.T, b *builder)) {
	for name, classic := range map[string]bool{"BuildKit": false, "the Engine's own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newBuilder(t, Options{ClassicBuilder: classic}))
		})
	}
}

func TestBuild_contextArgsStage(t *testing.T) {
	t.Parallel()
	bothBuilders(t, func(t *testing.T, b *builder) {
		dir := filetest.Lay(t, map[string]string{
			"app/data": "one", "app/x.log": "1", "app/.dockerignore": "*.log",
			"other/Dockerfile": "ARG BASE\nFROM $BASE AS first\nARG WORD\nCOPY . /here\nRUN ls /here >/found; echo \"$WORD\" >>/found; grep -c fumehood-peer /etc/hosts >>/found\nFROM first\nRUN rm /found\n",
		})
		s := b.source("web", image.Build{
			Context: filepath.Join(dir, "app"), Dockerfile: filepath.Join(dir, "other", "Dockerfile"), Target: "first",
			Args: map[string]string{"BASE": testBase, "WORD": "a $b \"c\""}, ExtraHosts: []string{"fumehood-peer:10.1.2.3"},
		})
		made := b.built(t, s)
		if !strings.HasPrefix(made.Ref, image.BuiltPrefix) || made.Arch != archOf(t, b.Provider) {
			t.Errorf("got %+v", made)
		}
		if got := b.reads(t, made.Ref, "/found"); got != "data\na $b \"c\"\n1\n" {
			t.Errorf("the image has %q", got)
		}
	})
}

// TestBuild_ignored checks what COPY has of the files that only the builder needs.
func TestBuild_ignored(t *testing.T) {
	t.Parallel()
	const text = "COPY . /here\nRUN find /here -type f -o -type l | sort >/found\n"
	bothBuilders(t, func(t *testing.T, b *builder) {
		name := "fumehood-test-" + b.mark
		for label, c := range map[string]struct {
			files      map[string]string
			dockerfile string
			inline     bool
			want       string
		}{
			"nothing": {files: map[string]string{"Dockerfile": "FROM " + testBase + "\n" + text, ".dockerignore": "other"}, want: ".dockerignore Dockerfile d/e x"},
			"both":    {files: map[string]string{"Dockerfile": "FROM " + testBase + "\n" + text, ".dockerignore": "Dockerfile\n.dockerignore\n"}, want: "d/e x"},
			"own list": {
				files:      map[string]string{"d/a.Dockerfile": "FROM " + testBase + "\n" + text, "d/a.Dockerfile.dockerignore": "d/a.*", ".dockerignore": ".*\nx"},
				dockerfile: "d/a.Dockerfile", want: ".dockerignore d/e x",
			},
			"inline":                     {inline: true, want: "d/e x"},
			"on another service's image": {files: map[string]string{"Dockerfile": "FROM " + name + "\n" + text}, want: "Dockerfile d/e x"},
		} {
			files := map[string]string{"x": "x", "d/e": "e", "l": "-> x"}
			maps.Copy(files, c.files)
			build := image.Build{Context: filetest.Lay(t, files), Dockerfile: c.dockerfile}
			if c.inline {
				build.Inline = "FROM " + testBase + "\n" + text
			}
			base := b.source("base", image.Build{Context: t.TempDir(), Inline: "FROM " + testBase + "\n"})
			base.Image = name + ":latest"
			images, err := b.images.Prepare(t.Context(), []image.Source{b.source("app", build), base}, &fumehood.Compose{}, provider.PrepareOptions{})
			if err != nil {
				t.Errorf("%s: %v", label, err)
				continue
			}
			got := strings.ReplaceAll(b.reads(t, images["app"].Ref, "/found"), "/here/", "")
			if got := strings.Join(slices.DeleteFunc(strings.Fields(got), func(name string) bool { return name == "l" }), " "); got != c.want {
				t.Errorf("%s: got %q, want %q", label, got, c.want)
			}
		}
	})
}

// TestBuild_names has a project that gives its builds the names of other images, and builds on them.
func TestBuild_names(t *testing.T) {
	t.Parallel()
	bothBuilders(t, func(t *testing.T, b *builder) {
		ctx := context.WithoutCancel(t.Context())
		taken := "fumehood-test-" + b.mark + ":taken"
		before, found, err := b.engine.Image(ctx, testBase)
		if err != nil || !found {
			t.Fatal(found, err)
		}
		if err := b.engine.Tag(ctx, before.ID, taken); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.engine.Untag(ctx, taken); err != nil {
				t.Error(err)
			}
		})
		free := []string{"fumehood-test-" + b.mark + ":free", "fumehood-guest:" + b.mark}
		dir := filetest.Lay(t, map[string]string{
			"base/Dockerfile": "FROM " + testBase + "\nRUN echo " + b.mark + " >/made\n",
			"top/Dockerfile":  "ARG ON=" + taken + "\nFROM ${ON}\nCOPY --from=" + free[0] + " /made /copied\n",
		})
		base := b.source("base", image.Build{Context: filepath.Join(dir, "base"), Tags: free})
		base.Image = taken
		top := b.source("top", image.Build{Context: filepath.Join(dir, "top")})
		user := image.Source{Service: "user", Image: taken, Pull: image.PullMissing}
		images, err := b.images.Prepare(t.Context(), []image.Source{base, top, user}, &fumehood.Compose{}, provider.PrepareOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if images["user"].ID != images["base"].ID {
			t.Errorf("the service that uses the image gets %s, want %s", images["user"].ID, images["base"].ID)
		}
		if got := b.reads(t, images["top"].Ref, "/made") + b.reads(t, images["top"].Ref, "/copied"); got != b.mark+"\n"+b.mark+"\n" {
			t.Errorf("an image built on it has %q", got)
		}
		if now, found, err := b.engine.Image(ctx, taken); err != nil || !found || now.ID != before.ID {
			t.Errorf("the name that was taken leads to %s, %v, want %s", now.ID, err, before.ID)
		}
		for _, name := range free {
			if image, found, err := b.engine.Image(ctx, name); err != nil || found {
				t.Errorf("%s has become a name of %s, %v", name, image.ID, err)
			}
		}
	})
}

func TestBuild_rebuiltOnChange(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	dir := filetest.Lay(t, map[string]string{"Dockerfile": "FROM " + testBase + "\nCOPY data /\nRUN cat /data >/copy\n", "data": "one"})
	s := b.source("web", image.Build{Context: dir})
	first := b.built(t, s)
	again := b.built(t, s)
	elsewhere := filetest.Lay(t, map[string]string{"Dockerfile": "FROM " + testBase + "\nCOPY data /\nRUN cat /data >/copy\n", "data": "one"})
	moved := b.built(t, b.source("api", image.Build{Context: elsewhere}))
	if first.Ref != again.Ref || moved.Ref != first.Ref || first.ID != moved.ID || b.ran("RUN cat") != 1 {
		t.Errorf("the same content was built %d times: %s, %s, %s", b.ran("RUN cat"), first.Ref, again.Ref, moved.Ref)
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed := b.built(t, s); changed.Ref == first.Ref || b.reads(t, changed.Ref, "/copy") != "two" {
		t.Errorf("not rebuilt after a change: %s", changed.Ref)
	}
	images, err := b.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, i := range images {
		if i.ID == first.ID && i.Mark.Inputs != "" {
			listed++
		}
	}
	if listed != 1 {
		t.Errorf("the image is listed %d times among those that were built", listed)
	}
}

func TestBuild_shared(t *testing.T) {
	t.Parallel()
	one, two := newBuilder(t, Options{}), newBuilder(t, Options{})
	two.mark = one.mark
	dir := filetest.Lay(t, map[string]string{"Dockerfile": "FROM " + testBase + "\nRUN sleep 1; echo " + one.mark + "\n"})
	refs := make([]string, 16)
	errs := make([]error, len(refs))
	var wg sync.WaitGroup
	for i := range refs {
		wg.Go(func() {
			b := one
			if i%2 == 1 {
				b = two
			}
			images, err := b.images.Prepare(t.Context(), []image.Source{b.source("web", image.Build{Context: dir})}, &fumehood.Compose{}, provider.PrepareOptions{})
			refs[i], errs[i] = images["web"].Ref, err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, ref := range refs {
		if ref != refs[0] {
			t.Errorf("got %s and %s", ref, refs[0])
		}
	}
	if n := one.ran("RUN sleep") + two.ran("RUN sleep"); n != 1 {
		t.Errorf("it was built %d times", n)
	}
}

func TestBuild_onOtherService(t *testing.T) {
	t.Parallel()
	bothBuilders(t, func(t *testing.T, b *builder) {
		name := "fumehood-test-" + b.mark
		dir := filetest.Lay(t, map[string]string{"base/Dockerfile": "FROM " + testBase + "\nRUN echo base >/base\n", "app/Dockerfile": "FROM " + name + "\nRUN cat /base >/app\n"})
		app := b.source("app", image.Build{Context: filepath.Join(dir, "app")})
		base := b.source("base", image.Build{Context: filepath.Join(dir, "base")})
		base.Image = name + ":latest"
		sources := []image.Source{app, base, {Service: "third", Image: name, Pull: image.PullMissing}}
		images, err := b.images.Prepare(t.Context(), sources, &fumehood.Compose{}, provider.PrepareOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if images["third"].Ref != images["base"].Ref || b.reads(t, images["app"].Ref, "/app") != "base\n" {
			t.Errorf("got %+v", images)
		}
		app.Image, base.Build.Inline = "app", "FROM app"
		if _, err := b.images.Prepare(t.Context(), []image.Source{app, base}, &fumehood.Compose{}, provider.PrepareOptions{}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "cyclic image dependency") {
			t.Errorf("a circle: got %v", err)
		}
	})
}

func TestBuild_secrets(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	dir := filetest.Lay(t, map[string]string{"secret": "of a file"})
	s := b.source("web", image.Build{
		Context: t.TempDir(), Inline: "FROM " + testBase + "\nRUN --mount=type=secret,id=file --mount=type=secret,id=text wc -c /run/secrets/* | tr -s ' ' >/counts\n",
		Secrets: []image.Secret{{ID: "file", File: filepath.Join(dir, "secret")}, {ID: "text", Content: "content"}},
	})
	made := b.built(t, s)
	if got := b.reads(t, made.Ref, "/counts"); !strings.Contains(got, "9 /run/secrets/file") || !strings.Contains(got, "7 /run/secrets/text") {
		t.Errorf("got %q", got)
	}
	if _, err := newBuilder(t, Options{ClassicBuilder: true}).images.Prepare(t.Context(), []image.Source{s}, &fumehood.Compose{}, provider.PrepareOptions{}); !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "line 2: RUN --mount") {
		t.Errorf("without BuildKit: got %v", err)
	}
}

func TestBuilderFor(t *testing.T) {
	old, young, podman := engine.Server{Version: "20.10.24", BuildKit: true}, engine.Server{Version: "28.1.0", BuildKit: true}, engine.Server{Version: "5.0.0"}
	mount, heredoc := image.Dockerfile{Needs: []string{"line 3: RUN --mount"}}, image.Dockerfile{Needs: []string{"line 2: a heredoc"}, Heredoc: 2}
	asking := heredoc
	asking.Syntax = "docker/dockerfile:1"
	for name, c := range map[string]struct {
		d                image.Dockerfile
		server           engine.Server
		classic, secrets bool
		buildKit         bool
		says             string
	}{
		"BuildKit where there is one":   {server: old, buildKit: true},
		"the Engine without BuildKit":   {server: podman},
		"the Engine, if asked for":      {server: young, classic: true},
		"a mount":                       {d: mount, server: old, buildKit: true},
		"a mount without BuildKit":      {d: mount, server: podman, says: "needs BuildKit, which is not available: line 3: RUN --mount"},
		"secrets without BuildKit":      {server: podman, secrets: true, says: "secrets"},
		"a heredoc":                     {d: heredoc, server: young, buildKit: true},
		"a heredoc and an old BuildKit": {d: heredoc, server: old, says: "line 2 of the Dockerfile is a heredoc"},
		"a heredoc, BuildKit fetched":   {d: asking, server: old, buildKit: true},
		"another's syntax, no BuildKit": {d: image.Dockerfile{Syntax: "my/own"}, server: podman, says: "the syntax my/own"},
		"Docker's syntax, no BuildKit":  {d: image.Dockerfile{Syntax: "docker/dockerfile:1.4"}, server: podman},
	} {
		got, err := builderFor(c.d, c.secrets, c.server, c.classic)
		if got != c.buildKit || (err != nil) != (c.says != "") || err != nil && (!errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %t, %v", name, got, err)
		}
	}
}

func TestBuild_stepFails(t *testing.T) {
	t.Parallel()
	bothBuilders(t, func(t *testing.T, b *builder) {
		s := b.source("web", image.Build{Context: t.TempDir(), Inline: "FROM " + testBase + "\nRUN echo out of 500 MB; exit 3\n"})
		_, err := b.images.Prepare(t.Context(), []image.Source{s}, &fumehood.Compose{}, provider.PrepareOptions{})
		if !errors.Is(err, fumehood.ErrConfig) {
			t.Fatalf("got %v", err)
		}
		for _, part := range []string{"web", "RUN echo out of 500 MB", "exit code 3", "it printed last:\n  out of 500 MB"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in: %v", part, err)
			}
		}
	})
}

func TestPrepare_prebuiltMissing(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	dir := filetest.Lay(t, map[string]string{"Dockerfile": "FROM " + testBase + "\nRUN true\n", "far.Dockerfile": "FROM fumehood-test/none:3\n"})
	sources := []image.Source{
		{Service: "db", Image: "fumehood-test/none:1", Pull: image.PullMissing},
		{Service: "cache", Image: "fumehood-test/none:2", Pull: image.PullAlways},
		{Service: "idle", Image: testBase, Pull: image.PullAlways},
		b.source("web", image.Build{Context: dir}),
		b.source("far", image.Build{Context: dir, Dockerfile: "far.Dockerfile"}),
	}
	_, err := b.images.Prepare(t.Context(), sources, &fumehood.Compose{Prebuilt: true}, provider.PrepareOptions{})
	if !errors.Is(err, fumehood.ErrConfig) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"none:1 (db)", "none:2 (cache)", "none:3 (far)", "(web)", "(far)"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), "idle") || b.ran("") != 0 {
		t.Errorf("got %v, and %d steps", err, b.ran(""))
	}
	web := b.built(t, sources[3])
	images, err := b.images.Prepare(t.Context(), sources[2:4], &fumehood.Compose{Prebuilt: true}, provider.PrepareOptions{})
	if err != nil || images["web"].ID != web.ID {
		t.Errorf("existing image: %+v, %v", images, err)
	}
}

func TestPull_policies(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	r := serveBusy(t, b, 0, http.StatusOK)
	local := []image.Source{{Service: "one", Image: r.ref, Pull: image.PullNever}, {Service: "two", Image: "fumehood-test/none:1", Pull: image.PullNever}}
	_, err := b.images.Prepare(t.Context(), local, &fumehood.Compose{}, provider.PrepareOptions{})
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), r.ref+" (one)") || !strings.Contains(err.Error(), "none:1 (two)") {
		t.Errorf("got %v", err)
	}
	if n := r.manifests.Load(); n != 0 {
		t.Errorf("the registry was asked %d times", n)
	}
	asked := func(name, policy string, age time.Duration, want int64) {
		t.Helper()
		b.built(t, image.Source{Service: "one", Image: r.ref, Pull: policy, Age: age})
		if n := r.manifests.Load(); n != want {
			t.Errorf("%s: the registry was asked %d times, want %d", name, n, want)
		}
	}
	asked("missing", image.PullMissing, 0, 1)
	asked("not missing", image.PullMissing, 0, 1)
	asked("never", image.PullNever, 0, 1)
	asked("always", image.PullAlways, 0, 2)
	if err := b.engine.Tag(t.Context(), r.ref, "fumehood-test-"+b.mark); err != nil { // sets the time of its last tag
		t.Fatal(err)
	}
	asked("young enough", image.PullAlways, time.Hour, 2)
	asked("too old", image.PullAlways, time.Nanosecond, 3)
}

// busyRegistry rejects the first requests for its image's manifest.
type busyRegistry struct {
	ref       string
	manifests atomic.Int64
}

func serveBusy(t *testing.T, b *builder, refusals int64, status int) *busyRegistry {
	t.Helper()
	r := &busyRegistry{}
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var open atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if open.Load() && req.Method != http.MethodPut && strings.Contains(req.URL.Path, "/manifests/") && !strings.Contains(req.URL.Path, "sha256:") {
			if r.manifests.Add(1) <= refusals {
				w.WriteHeader(status)
				return
			}
		}
		store.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	image, err := random.Image(1<<10, 1)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.ConfigFile(image, aged(t, image, archOf(t, b.Provider), map[string]string{"fumehood-test": b.mark})); err != nil {
		t.Fatal(err)
	}
	r.ref = strings.TrimPrefix(server.URL, "http://") + "/fumehood-test/busy:1"
	ref, err := name.ParseReference(r.ref)
	if err == nil {
		err = remote.Write(ref, image, remote.WithContext(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	open.Store(true)
	return r
}

// aged returns the configuration of an image, created two days ago, with labels and an architecture.
func aged(t *testing.T, image v1.Image, arch string, labels map[string]string) *v1.ConfigFile {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config.Labels = "linux", arch, labels
	config.Created = v1.Time{Time: time.Now().Add(-48 * time.Hour)}
	return config
}

func TestPull_registryBusy(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			b := newBuilder(t, Options{})
			r := serveBusy(t, b, 2, status)
			image := b.built(t, image.Source{Service: "web", Image: r.ref, Pull: image.PullMissing})
			if image.ID == "" || r.manifests.Load() < 3 {
				t.Errorf("got %+v after %d requests", image, r.manifests.Load())
			}
		})
	}
}

func TestPull_registryStaysBusy(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	b.images.Waits = []time.Duration{time.Millisecond, time.Millisecond}
	r := serveBusy(t, b, 1000, http.StatusTooManyRequests)
	s := image.Source{Service: "web", Image: r.ref, Pull: image.PullMissing}
	_, err := b.images.Prepare(t.Context(), []image.Source{s}, &fumehood.Compose{}, provider.PrepareOptions{})
	if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "web") {
		t.Errorf("got %v", err)
	}
	b.images.Waits = []time.Duration{time.Hour}
	_, err = b.images.Prepare(t.Context(), []image.Source{s}, &fumehood.Compose{PullTimeout: time.Second}, provider.PrepareOptions{})
	if !errors.Is(err, fumehood.ErrLimit) || !strings.Contains(err.Error(), "limit of 1s") || !strings.Contains(err.Error(), "web") {
		t.Errorf("beyond its limit: got %v", err)
	}
}

func TestBuild_timeout(t *testing.T) {
	t.Parallel()
	bothBuilders(t, func(t *testing.T, b *builder) {
		s := b.source("web", image.Build{Context: t.TempDir(), Inline: "FROM " + testBase + "\nRUN sleep 60\n"})
		_, err := b.images.Prepare(t.Context(), []image.Source{s}, &fumehood.Compose{BuildTimeout: 2 * time.Second}, provider.PrepareOptions{})
		if !errors.Is(err, fumehood.ErrLimit) || !strings.Contains(err.Error(), "limit of 2s") || !strings.Contains(err.Error(), "web") {
			t.Errorf("got %v", err)
		}
	})
}

func TestBuild_canceled(t *testing.T) {
	t.Parallel()
	bothBuilders(t, func(t *testing.T, b *builder) {
		ctx, cancel := context.WithCancel(t.Context())
		var seen atomic.Int64 // when its step was seen to begin
		report := b.images.Progress
		b.images.Progress = func(ev provider.Progress) {
			if report(ev); strings.Contains(ev.Status, "RUN sleep") {
				seen.Store(time.Now().UnixNano())
				cancel()
			}
		}
		dir := filetest.Lay(t, map[string]string{
			"Dockerfile":   "FROM " + testBase + "\nRUN sleep 100\n",
			"compose.yaml": "services: {web: {build: {context: ., labels: {fumehood-test: " + b.mark + "}}}}\n",
		})
		_, err := b.Start(ctx, fumehood.Spec{Compose: &fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}}})
		if !errors.Is(err, fumehood.ErrCanceled) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(time.Unix(0, seen.Load())); seen.Load() == 0 || took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestCompose_startsBuiltImages(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	dir := filetest.Lay(t, map[string]string{
		"app/Dockerfile": "ARG WORD=none\nFROM " + testBase + " AS tools\nARG WORD\nRUN echo $WORD >/word\nFROM tools\nRUN rm /word\n",
		"compose.yaml": `services:
  web:
    build: {context: app, target: tools, args: [WORD], labels: {fumehood-test: "` + b.mark + `"}}
    command: sleep infinity
  job:
    build: {dockerfile_inline: "FROM ` + testBase + `\nENTRYPOINT [\"sleep\"]\nCMD [\"infinity\"]", labels: {fumehood-test: "` + b.mark + `"}}
`,
	})
	p := &fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}, Env: map[string]string{"WORD": "given"}}
	sb, err := b.Start(t.Context(), fumehood.Spec{Compose: p})
	if err != nil {
		t.Fatal(err)
	}
	text, err := sb.ReadFile(t.Context(), "/word", fumehood.ReadOptions{})
	if err != nil || string(text) != "given\n" {
		t.Errorf("got %q, %v", text, err)
	}
	job, err := sb.Lookup("job")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := job.Exec(t.Context(), fumehood.Cmd{Args: []string{"cat", "/proc/1/comm"}}); err != nil || res.Stdout.Text() != "guest\n" {
		t.Errorf("the image's command only idles, but the main process is %+v, %v", res, err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPrepare_platform(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	other := "arm64"
	if archOf(t, b.Provider) == other {
		other = "amd64"
	}
	s := b.source("web", image.Build{Context: t.TempDir(), Inline: "FROM scratch\nCOPY . /\n"})
	s.Platform = "linux/" + other
	made := b.built(t, s)
	if made.Arch != other {
		t.Fatalf("got an image for %s", made.Arch)
	}
	plain := image.Source{Service: "db", Image: made.Ref, Pull: image.PullNever}
	_, err := b.images.Prepare(t.Context(), []image.Source{plain}, &fumehood.Compose{}, provider.PrepareOptions{})
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "db") || !strings.Contains(err.Error(), "linux/"+other) {
		t.Errorf("got %v", err)
	}
	plain.Platform = s.Platform
	b.built(t, plain)
}

// archOf returns the architecture of a provider's Engine.
func archOf(t *testing.T, p *Provider) string {
	t.Helper()
	server, err := p.engine.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return server.Arch
}
