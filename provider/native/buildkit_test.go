//go:build linux && (amd64 || arm64)

package native_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	pushing "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// buildKit runs BuildKit until the end of the test, and returns a registry whose image /busybox builds can use.
func buildKit(t *testing.T) (host string) {
	t.Helper()
	need(t)
	bin, err := filepath.Abs("../../bin")
	if err == nil {
		_, err = os.Stat(filepath.Join(bin, "buildkitd"))
	}
	if err != nil {
		tier.Missing(t, tier.All, fmt.Errorf("scripts/ensure-buildkit builds it: %w", err))
	}
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	host = strings.TrimPrefix(s.URL, "http://")
	img, err := tarball.ImageFromPath(testimages.Archive(t, busybox), nil)
	if err != nil {
		t.Fatal(err)
	}
	trigger, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	trigger.Config.OnBuild = []string{"ADD http://127.0.0.1/x /"}
	fetching, err := mutate.ConfigFile(img, trigger)
	if err != nil {
		t.Fatal(err)
	}
	for as, img := range map[string]pushing.Taggable{"busybox": img, "moving": img, "fetching": fetching} {
		pushTo(t, host+"/"+as, img)
	}
	dir, err := os.MkdirTemp("", "") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	address := "unix://" + filepath.Join(dir, "s")
	t.Setenv("BUILDKIT_HOST", address)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "buildkitd", "--root", filepath.Join(dir, "root"), "--addr", address, //nolint:gosec // a test's
		"--oci-worker-net", "host", "--containerd-worker=false", "--oci-worker-binary", "runc")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
		if t.Failed() {
			t.Logf("buildkitd: %v: %s", err, out.String())
		}
		for _, groups := range []string{"/sys/fs/cgroup/*/buildkit/*", "/sys/fs/cgroup/*/buildkit"} { // runc leaves some
			left, _ := filepath.Glob(groups)
			for _, group := range left {
				_ = os.Remove(group) // fails if another daemon uses it
			}
		}
	})
	conformance.Eventually(t, "buildkitd answers", func() bool {
		return exec.CommandContext(t.Context(), "buildctl", "debug", "workers").Run() == nil
	})
	return host
}

// pushTo has a registry give an image a name.
func pushTo(t *testing.T, as string, img pushing.Taggable) {
	t.Helper()
	ref, err := name.NewTag(as)
	if err == nil {
		err = pushing.Push(ref, img)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// steps collects the steps of builds.
type steps struct {
	mu  sync.Mutex
	all string
}

func (s *steps) add(p provider.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(p.Status, "[") {
		s.all += p.Status + "\n"
	}
}

// take returns the steps since the last call.
func (s *steps) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.all = "" }()
	return s.all
}

// buildProject returns a spec of a project with a service that is built. build is the inside of its section.
func buildProject(t *testing.T, build string, files map[string]string) fumehood.Spec {
	t.Helper()
	dir := t.TempDir()
	files = maps.Clone(files)
	files["compose.yaml"] = "services: {a: {image: own, command: sleep infinity, build: {context: ., " + build + "}}}\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return fumehood.Spec{Compose: &fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}}}
}

// What BuildKit would build in another way than a Docker Engine, or from images that are not checked, is refused.
func TestProvider_Start_buildKitRefused(t *testing.T) {
	bin := t.TempDir()
	if err := files.WriteProgram(filepath.Join(bin, "buildctl"), []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("BUILDKIT_HOST", "tcp://daemon")
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	p, archive := newProvider(t, native.Options{}), testimages.Archive(t, busybox)
	for name, c := range map[string]struct{ build, from, want string }{
		"cache_from":      {"cache_from: [x]", busybox, "cache_from"},
		"extra_hosts":     {"extra_hosts: ['x:1.2.3.4']", busybox, "extra_hosts"},
		"shm_size":        {"shm_size: 1m", busybox, "shm_size"},
		"ulimits":         {"ulimits: {nofile: 5}", busybox, "ulimits"},
		"pull":            {"pull: true", busybox, "pull"},
		"other processor": {"platforms: [linux/s390x]", busybox, "the platform linux/s390x"},
		"FROM --platform": {"", "--platform=linux/s390x " + busybox, "FROM --platform"},
		"FROM a file":     {"", "docker-archive:" + archive, "FROM docker-archive:" + archive},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Start(t.Context(), buildProject(t, c.build, map[string]string{"Dockerfile": "FROM " + c.from + "\n"}))
			if !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), c.want+" in a build with BuildKit alone") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Without a Docker Engine, Dockerfiles are built with BuildKit.
func TestProvider_Start_buildKit(t *testing.T) {
	tier.Need(t, tier.All)
	host := buildKit(t)
	var built steps
	cache := t.TempDir()
	p := newProvider(t, native.Options{CacheDir: cache, Progress: built.add})
	run := func(t *testing.T, spec fumehood.Spec, script string) string {
		t.Helper()
		r, err := start(t, p, spec).Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout.Text() + r.Stderr.Text()
	}
	from := "FROM " + host + "/busybox\n"
	t.Run("Dockerfile", func(t *testing.T) {
		spec := dockerfile(t, from+"RUN echo built >/built\nENV A=B\nUSER tester\n")
		images, err := p.Prepare(t.Context(), spec, provider.PrepareOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := built.take(); !strings.Contains(got, "RUN echo built") {
			t.Errorf("got steps %q", got)
		}
		for _, spec.Images = range []map[string]string{nil, images} {
			if got := run(t, spec, "cat /built; echo $A; id -un"); got != "built\nB\ntester\n" {
				t.Errorf("got %q", got)
			}
		}
		if again := built.take(); again != "" {
			t.Errorf("built again: %q", again)
		}
	})
	t.Run("options", func(t *testing.T) {
		text := from + "ARG X\nCOPY --chown=1000 . /c\nRUN --mount=type=secret,id=s echo $X $(cat /run/secrets/s) >/x; ls /sys/class/net >/net\nFROM scratch\n"
		text = strings.Replace(text, "busybox\n", "busybox AS first\n", 1)
		spec := buildProject(t, "target: first, args: {X: '1,2=3'}, network: none, no_cache: true, labels: {l: m}, secrets: [s], dockerfile: D",
			map[string]string{"D": text, ".dockerignore": "ignored\n", "ignored": "x", "kept": "x", "secret": "hidden"})
		file := spec.Compose.Files[0]
		f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("secrets: {s: {file: ./secret}}\n")
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if got := run(t, spec, "cat /x /net; ls /c; stat -c %u /c/kept"); got != "1,2=3 hidden\nlo\nD\ncompose.yaml\nkept\nsecret\n1000\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("ignored Dockerfile", func(t *testing.T) {
		text := from + "COPY . /c\nRUN ls -A /c >/found\n"
		for want, files := range map[string]map[string]string{
			"kept\n":                  {"D": text, ".dockerignore": "D\n.dockerignore\ncompose.yaml\n"},
			".dockerignore\nkept\n":   {"D": text, "D.dockerignore": "D*\ncompose.yaml\n", ".dockerignore": "*"},
			"D\ncompose.yaml\nkept\n": {"D": text, ".dockerignore": ".*"},
		} {
			files["kept"] = "x"
			if got := run(t, buildProject(t, "network: none, dockerfile: D", files), "cat /found"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
	t.Run("changed context", func(t *testing.T) {
		for _, content := range []string{"1", "2", "1"} {
			spec := buildProject(t, "network: none", map[string]string{"Dockerfile": from + "COPY f /f\n", "f": content})
			if got := run(t, spec, "cat /f"); got != content {
				t.Errorf("got %q, want %q", got, content)
			}
		}
	})
	t.Run("at once", func(t *testing.T) {
		spec := buildProject(t, "network: none", map[string]string{"Dockerfile": from + "RUN sleep 1; echo once\n"})
		built.take()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := p.Prepare(t.Context(), spec, provider.PrepareOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := built.take(); strings.Count(got, "RUN") != 1 {
			t.Errorf("got steps %q", got)
		}
	})
	t.Run("moved tag", func(t *testing.T) {
		for _, step := range []string{"1", "2"} {
			spec := dockerfile(t, "ARG BASE="+host+"/moving\nFROM $BASE\nRUN echo "+step+" >/step\n")
			if got := run(t, spec, "cat /step"); got != step+"\n" {
				t.Errorf("got %q", got)
			}
			moved, err := name.NewTag(host + "/fetching")
			if err != nil {
				t.Fatal(err)
			}
			img, err := pushing.Image(moved)
			if err != nil {
				t.Fatal(err)
			}
			pushTo(t, host+"/moving", img)
		}
	})
	t.Run("own ignore list", func(t *testing.T) {
		spec := buildProject(t, "network: none, dockerfile: D", map[string]string{
			"D": from + "COPY . /c\n", "D.dockerignore": "ignored\nD*\n", "ignored": "x", "kept": "x", ".dockerignore": "kept\n",
		})
		if got := run(t, spec, "ls -A /c"); got != ".dockerignore\ncompose.yaml\nkept\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("prebuilt", func(t *testing.T) {
		spec := buildProject(t, "network: none", map[string]string{"Dockerfile": from + "RUN echo new\n"})
		spec.Compose.Prebuilt = true
		if _, err := p.Start(t.Context(), spec); !errors.Is(err, fumehood.ErrConfig) {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct {
		build, text, want string
		class             error
	}{
		"failed step":    {"", from + "RUN echo why; exit 3\n", "RUN echo why; exit 3: exit code 3; it printed last:\n  why", fumehood.ErrConfig},
		"bad Dockerfile": {"target: none", from, "none", fumehood.ErrConfig},
		"missing file":   {"", from + "COPY none /\n", "none", fumehood.ErrConfig},
		"no such image":  {"", "FROM " + host + "/none\n", "404", fumehood.ErrConfig},
		"remote ADD":     {"", from + "ADD http://127.0.0.1/x /\n", "is not safe", fumehood.ErrConfig},
		"remote trigger": {"", "FROM " + host + "/fetching\n", "is not safe", fumehood.ErrConfig},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Start(t.Context(), buildProject(t, c.build, map[string]string{"Dockerfile": c.text}))
			if !errors.Is(err, c.class) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		spec := dockerfile(t, from+"RUN sleep 100\n")
		built.take()
		ended := make(chan error, 1)
		go func() {
			_, err := p.Prepare(ctx, spec, provider.PrepareOptions{})
			ended <- err
		}()
		conformance.Eventually(t, "the step runs", func() bool { return strings.Contains(built.take(), "sleep") })
		cancel()
		if err := <-ended; !errors.Is(err, fumehood.ErrCanceled) {
			t.Error(err)
		}
	})
	t.Run("too late", func(t *testing.T) {
		spec := dockerfile(t, from+"RUN sleep 101\n")
		spec.Compose.BuildTimeout = time.Second
		if _, err := p.Prepare(t.Context(), spec, provider.PrepareOptions{}); !errors.Is(err, fumehood.ErrLimit) {
			t.Error(err)
		}
	})
	t.Run("environment", func(t *testing.T) {
		if _, err := p.BuildImage(t.Context(), provider.ImageBuild{}); !errors.Is(err, fumehood.ErrUnsupported) {
			t.Error(err)
		}
	})
	if left, err := filepath.Glob(filepath.Join(cache, "*", "tmp", "*")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}
