//go:build amd64 || arm64

package native_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// dockerfile returns the spec of a sandbox that is built from a Dockerfile.
func dockerfile(t *testing.T, text string) fumehood.Spec {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Dockerfile")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return fumehood.Spec{Compose: &fumehood.Compose{Dockerfile: file}}
}

func TestProvider_Start_noBuilder(t *testing.T) {
	t.Parallel()
	for name, builder := range map[string]func(context.Context) (native.Builder, error){
		"none": nil,
		"no Engine": func(context.Context) (native.Builder, error) {
			return nil, &fumehood.Error{Op: "connect", Class: fumehood.ErrUnavailable, Err: errors.New("no Engine answers"), Hint: "start it"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, native.Options{Builder: builder})
			for name, try := range map[string]func() error{
				"start": func() error {
					_, err := p.Start(t.Context(), dockerfile(t, "FROM "+busybox))
					return err
				},
				"prepare": func() error {
					_, err := p.Prepare(t.Context(), dockerfile(t, "FROM "+busybox), provider.PrepareOptions{})
					return err
				},
				"build": func() error {
					_, err := p.BuildImage(t.Context(), provider.ImageBuild{})
					return err
				},
			} {
				if err := try(); !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "docker-archive:FILE") || strings.Contains(err.Error(), "start it") {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// The sandbox has what the Dockerfile has built, with the configuration of the image.
func TestProvider_Start_dockerfile(t *testing.T) {
	t.Parallel()
	tier.NeedDocker(t)
	engine := dockertest.Provider(t, docker.Options{})
	p := newProvider(t, native.Options{Builder: func(context.Context) (native.Builder, error) { return engine, nil }})
	spec := dockerfile(t, "FROM "+busybox+"\nRUN echo built >/built\nENV A=B\nUSER tester\n")
	images, err := p.Prepare(t.Context(), spec, provider.PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, spec.Images = range []map[string]string{nil, images} {
		r, err := start(t, p, spec).Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "cat /built; echo $A; id -un"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Stdout.Text(); got != "built\nB\ntester\n" {
			t.Errorf("got %q, %s", got, r.Stderr.Text())
		}
	}
}

// The Engine builds what a project builds, also for services that name the image of another one, and built-in images. It
// neither needs nor fetches the others.
func TestPod_build(t *testing.T) {
	t.Parallel()
	tier.NeedDocker(t)
	engine := dockertest.Provider(t, docker.Options{})
	own := hostile{files: []layerFile{file("own", "found")}}
	p, ref := own.provider(t, native.Options{Builder: func(context.Context) (native.Builder, error) { return engine, nil }})
	if _, err := p.LoadImages(t.Context(), strings.TrimPrefix(ref, "docker-archive:")); err != nil {
		t.Fatal(err)
	}
	sb := start(t, p, fumehood.Spec{Compose: composeFile(t, `services:
  default:
    command: sleep infinity
    image: built-by-default
    build: {context: ., dockerfile_inline: "FROM `+busybox+`\nRUN echo built >/built"}
  same: {image: "built-by-default", command: sleep infinity}
  other: {image: "hostile:latest", command: sleep infinity}
`)})
	if got := in(t, sb, "default", "cat /built") + in(t, sb, "same", "cat /built") + in(t, sb, "other", "cat /own"); got != "builtbuiltfound" {
		t.Errorf("got %q", got)
	}
}

// A wrong Dockerfile is reported before any image is fetched.
func TestPod_wrongDockerfile(t *testing.T) {
	t.Parallel()
	asked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("a registry was asked")
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(asked.Close)
	p := newProvider(t, native.Options{})
	_, err := p.Start(t.Context(), fumehood.Spec{Compose: composeFile(t, `services:
  default: {build: {context: ., dockerfile_inline: "FROM x\nADD http://h/f /"}, command: sleep infinity}
  other: {image: "`+asked.Listener.Addr().String()+`/missing", command: sleep infinity}
`)})
	if !errors.Is(err, fumehood.ErrFile) || !strings.Contains(err.Error(), "--allow-unsafe") {
		t.Errorf("got %v, want an ErrFile", err)
	}
}

// A project may use a built-in image without a builder if it was built before. Others are still an error.
func TestPod_builtinWithoutBuilder(t *testing.T) {
	t.Parallel()
	const builtin = "fumehood-builtin/agent"
	img, err := tarball.ImageFromPath(testimages.Archive(t, busybox), nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "builtin.tar")
	if err := tarball.WriteToFile(file, name.MustParseReference(builtin+":latest"), img); err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, native.Options{})
	if _, err := p.LoadImages(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	spec := fumehood.Spec{Compose: composeFile(t, "services: {default: {image: "+builtin+", command: sleep infinity}}\n")}
	if got := in(t, start(t, p, spec), "default", "echo started"); got != "started" {
		t.Errorf("got %q", got)
	}
	spec.Compose = composeFile(t, "services: {default: {image: "+builtin+"-missing, command: sleep infinity}}\n")
	if _, err := p.Start(t.Context(), spec); !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "docker-archive:FILE") {
		t.Errorf("got %v, want the error of a missing builder", err)
	}
}

// No error of a preparation has the value of this process's variable.
func TestProvider_Prepare_masked(t *testing.T) {
	t.Setenv("FUMEHOOD_TEST_MASKED", "s3cret")
	p := newProvider(t, native.Options{})
	project := &fumehood.Compose{
		Content: "services: {default: {build: {context: ., dockerfile_inline: \"FROM x\\nADD https://${FUMEHOOD_TEST_MASKED}@h/f /\"}}}\n",
		Dir:     t.TempDir(), HostEnv: []string{"FUMEHOOD_TEST_MASKED"},
	}
	_, err := p.Prepare(t.Context(), fumehood.Spec{Compose: project}, provider.PrepareOptions{})
	if !errors.Is(err, fumehood.ErrFile) || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "FUMEHOOD_TEST_MASKED") {
		t.Errorf("got %v", err)
	}
}
