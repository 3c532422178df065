package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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

	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// sharedLayer and ownLayer are the content sizes of the layers of the images of serveImages.
const sharedLayer, ownLayer = 100 << 10, 10 << 10

// serveImages runs a registry with the images a, b and c. They share a layer, and each has one of its own. It returns the
// beginning of their names, and the compressed sizes of the shared layer and of the others.
func serveImages(t *testing.T) (prefix string, shared int64, own map[string]int64) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	prefix = strings.TrimPrefix(server.URL, "http://") + "/fumehood-test/"
	layer := func(size int64) v1.Layer {
		l, err := random.Layer(size, types.DockerLayer)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	sizeOf := func(l v1.Layer) int64 {
		size, err := l.Size()
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	first := layer(sharedLayer)
	shared, own = sizeOf(first), map[string]int64{}
	for _, image := range []string{"a", "b", "c"} {
		config, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
		if err != nil {
			t.Fatal(err)
		}
		second := layer(ownLayer)
		own[image] = sizeOf(second)
		img, err := mutate.AppendLayers(config, first, second)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(prefix + image + ":1")
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img, remote.WithContext(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	return prefix, shared, own
}

// imageProgram runs fumehood image with a provider.
type imageProgram struct {
	env []string
	dir string
}

func (p imageProgram) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "fumehood", append([]string{"images"}, args...)...)
	cmd.Env, cmd.Dir = p.env, p.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// must is run for a command that succeeds.
func (p imageProgram) must(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := p.run(t, args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s%s", args, code, stdout, stderr)
	}
	return stdout
}

func (p imageProgram) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// plan returns the plan of a task, with its images in the form "STATE SAMPLES NAME".
func (p imageProgram) plan(t *testing.T, prefix string) (got planJSON, images []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.must(t, "plan", "task.yaml", "--json")), &got); err != nil {
		t.Fatal(err)
	}
	for _, i := range got.Images {
		state := i.Kind
		if *i.Here {
			state = "here"
		}
		images = append(images, fmt.Sprintf("%s %d %s", state, i.Samples, strings.TrimPrefix(i.Image, prefix)))
	}
	return got, images
}

func newImageProgram(t *testing.T, provider string) imageProgram {
	t.Helper()
	cmd, dir := program(t)
	env := append(cmd.Env, "FUMEHOOD_PROVIDER="+provider)
	if provider == "docker" {
		needDocker(t)
		return imageProgram{env, dir}
	}
	if err := native.CheckSupport(); err != nil {
		tier.Missing(t, tier.CI, err)
	}
	return imageProgram{append(env, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "DOCKER_HOST=unix://"+filepath.Join(dir, "none.sock")), dir}
}

// TestImagePrefetch plans and fetches the images of a task with each provider: those of samples, graders and Compose projects,
// within a limit, and with one that no registry has.
func TestImagePrefetch(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"docker", "native"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := newImageProgram(t, provider)
			prefix, shared, own := serveImages(t)
			if provider == "docker" {
				e, ctx := needDocker(t), context.WithoutCancel(t.Context())
				t.Cleanup(func() {
					for _, image := range []string{"a", "b", "c"} {
						if err := e.Untag(ctx, prefix+image+":1"); err != nil {
							t.Error(err)
						}
					}
				})
			}
			task := strings.ReplaceAll(`name: t
environment: {image: PREFIXa:1}
command: [a]
samples:
- id: one
- id: two
  grader: {command: [g], environment: {image: PREFIXb:1}}
- id: three
  metadata: {image: c}
  environment: {compose: [compose.yaml]}
`, "PREFIX", prefix)
			p.write(t, "task.yaml", task)
			p.write(t, "compose.yaml", "services: {main: {image: \""+prefix+"${SAMPLE_METADATA_IMAGE}:1\"}, side: {image: \""+prefix+"a:1\"}}\n")

			sum := own["a"] + own["b"] + own["c"]
			plan, images := p.plan(t, prefix)
			if want := []string{"pull 3 a:1", "pull 1 b:1", "pull 1 c:1"}; !slices.Equal(images, want) {
				t.Errorf("got %q, want %q", images, want)
			}
			if all := plan.Totals; all.Bytes != 3*shared+sum || all.UniqueBytes != shared+sum || *all.MissingBytes != shared+sum || *all.Missing != 3 {
				t.Errorf("got %+v with layers of %d and %v bytes", all, shared, own)
			}
			if (plan.Totals.FreeBytes != nil) != (provider == "native") {
				t.Errorf("the free space is %v", plan.Totals.FreeBytes)
			}

			out := p.must(t, "prefetch", "task.yaml", "--at-once", "1", "--max-bytes", fmt.Sprint(shared+sum-1))
			for _, says := range []string{prefix + "a:1: fetched\n", prefix + "b:1: fetched\n", prefix + "c:1: left, because of --max-bytes\n", "fetched 2 images in "} {
				if !strings.Contains(out, says) {
					t.Errorf("%s\nwithout %s", out, says)
				}
			}
			plan, images = p.plan(t, prefix)
			if want := []string{"here 3 a:1", "here 1 b:1", "pull 1 c:1"}; !slices.Equal(images, want) || *plan.Totals.MissingBytes != own["c"] {
				t.Errorf("got %q, missing %d bytes", images, *plan.Totals.MissingBytes)
			}
			if text := p.must(t, "plan", "task.yaml"); !strings.Contains(text, "missing: 1 image, ") || !strings.Contains(text, "SAMPLES  STATE    SIZE ") {
				t.Error(text)
			}

			p.write(t, "task.yaml", task+"- {id: none, environment: {image: \""+prefix+"none:1\"}}\n")
			code, out, errs := p.run(t, "plan", "task.yaml")
			if code != exitFailure || !strings.Contains(out, " error ") || !strings.Contains(out, prefix+"none:1\n") || !strings.Contains(out, prefix+"c:1\n") || !strings.Contains(errs, "1 of 4 images failed") {
				t.Errorf("exit code %d: %s%s", code, out, errs)
			}
			code, out, errs = p.run(t, "prefetch", "task.yaml")
			if code != exitFailure || !strings.Contains(out, "c:1: fetched\n") || !strings.Contains(out, "2 were there") || !strings.Contains(errs, prefix+"none:1") ||
				!strings.Contains(errs, "pulling "+prefix+"c:1") && !strings.Contains(errs, "unpacking "+prefix+"c:1") {
				t.Errorf("exit code %d: %s%s", code, out, errs)
			}
			p.write(t, "task.yaml", task)
			if out := p.must(t, "prefetch", "task.yaml"); !strings.HasPrefix(out, "fetched 0 images in ") || !strings.Contains(out, "3 were there") {
				t.Error(out)
			}
		})
	}
}

// TestImagePlan_builds plans what is built: by a Compose project, a Dockerfile and a spec. Only base images have sizes.
func TestImagePlan_builds(t *testing.T) {
	t.Parallel()
	p := newImageProgram(t, "docker")
	prefix, shared, own := serveImages(t)
	p.write(t, "task.yaml", `name: t
command: [a]
samples:
- {id: compose, environment: {compose: [compose.yaml]}}
- {id: dockerfile, environment: {dockerfile: Dockerfile}}
- {id: spec, environment: {file: env.yaml}}
- {id: file, environment: {image: "sha256:`+strings.Repeat("a", 64)+`"}}
`)
	p.write(t, "compose.yaml", "services: {main: {build: .}, side: {image: \""+prefix+"b:1\", pull_policy: never}}\n")
	p.write(t, "Dockerfile", "FROM "+prefix+"a:1\nCOPY --from="+prefix+"c:1 /x /y\n")
	p.write(t, "env.yaml", "type: docker\nname: fh-plan\ndocker: {build: {context: .}}\n")
	plan, images := p.plan(t, prefix)
	base := filepath.Base(p.dir)
	want := []string{
		"pull 3 a:1", "pull 3 c:1", "build 1 " + base + "/main", "local 1 b:1", "build 1 " + base + "/Dockerfile", "build 1 fumehood:fh-plan",
		"local 1 sha256:" + strings.Repeat("a", 64),
	}
	if !slices.Equal(images, want) || plan.Totals.UniqueBytes != shared+own["a"]+own["c"] {
		t.Errorf("got %q, want %q, totals %+v", images, want, plan.Totals)
	}
	for _, i := range plan.Images {
		if (i.Size != nil) != (i.Kind == "pull") || i.Error != nil {
			t.Errorf("got %+v", i)
		}
	}
}
