//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// composeFile writes a Compose file with a folder data, and returns its path.
func composeFile(t *testing.T, text string) *fumehood.Compose {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "compose.yaml")
	err := os.WriteFile(file, []byte(text), 0o600)
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "data"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &fumehood.Compose{Files: []string{file}}
}

const waiting = `
services:
  worker:
    image: ` + busybox + `
    command: sleep infinity
    user: "1000"
    working_dir: /w
    environment: {GREETING: hello}
    volumes: ["./data:/d:ro"]
    mem_limit: 64m
`

func TestProvider_Start_compose(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	for _, keeps := range []bool{false, true} {
		spec := fumehood.Spec{Compose: composeFile(t, waiting)}
		var sb fumehood.Sandbox
		if keeps {
			sb = again(t, p, keep(t, p, spec))
		} else {
			sb = start(t, p, spec)
		}
		services := sb.Info().Services
		if len(services) != 1 || services[0].Name != "worker" {
			t.Fatalf("services: %+v", services)
		}
		if limit := run(t, sb, "cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes 2>/dev/null || cat memory.max"); limit != "67108864" {
			t.Errorf("memory limit: %s", limit)
		}
		want := "1000 /w hello worker 127.0.0.1 read-only"
		got := run(t, sb, "touch /d/x 2>/dev/null && at=writable || at=read-only; echo $(id -u) $PWD $GREETING $(hostname) $(grep -w worker /etc/hosts | cut -f1 | head -n1) $at")
		if got != want {
			t.Errorf("kept %t: got %q, want %q", keeps, got, want)
		}
	}
}

func TestProvider_Start_composeRejected(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	for name, c := range map[string]struct {
		text  string
		class error
		want  string
	}{
		"networks": {waiting + "  other:\n    image: " + busybox + "\n    networks: [n]\nnetworks: {n: {}}\n", fumehood.ErrUnsupported, "compose.yaml:13: services.other.networks: it has no network in common with worker"},
		"terminal": {"services:\n  a:\n    image: " + busybox + "\n    tty: true\n", fumehood.ErrUnsupported, "compose.yaml:4: services.a.tty: "},
		"unsafe":   {"services:\n  a:\n    image: " + busybox + "\n    privileged: true\n", fumehood.ErrFile, "compose.yaml:4: services.a.privileged: "},
		"build":    {"services: {a: {build: {dockerfile_inline: FROM scratch}, command: sleep infinity}}\n", fumehood.ErrUnsupported, "images are built with a Docker Engine"},
		"guest":    {"services:\n  a:\n    image: " + busybox + "\n    command: sleep infinity\n    volumes: ['./data:/proc:ro']\n", fumehood.ErrConfig, "/proc is reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb, err := p.Start(t.Context(), fumehood.Spec{Compose: composeFile(t, c.text)})
			if err == nil {
				err = sb.Close(t.Context())
				t.Fatalf("it started; closed: %v", err)
			}
			if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %v with %q", err, c.class, c.want)
			}
		})
	}
}

func TestProvider_Prepare_compose(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	spec := fumehood.Spec{Compose: composeFile(t, waiting)}
	key, err := p.ImageKey(t.Context(), spec)
	if err != nil || key == "" {
		t.Errorf("key %q, error %v", key, err)
	}
	images, err := p.Prepare(t.Context(), spec, provider.PrepareOptions{})
	if err != nil || images["worker"] == "" {
		t.Fatalf("images %v, error %v", images, err)
	}
	spec.Images = images
	if got := run(t, start(t, p, spec), "hostname"); got != "worker" {
		t.Errorf("host name %q", got)
	}
	if prepared, err := p.ImageKey(t.Context(), spec); err != nil || prepared == "" {
		t.Errorf("key %q of the prepared image, error %v", prepared, err)
	}
}

// A registry that does not answer ends the start after PullTimeout.
func TestProvider_Start_pullTimeout(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	spec := fumehood.Spec{Compose: composeFile(t, strings.ReplaceAll(waiting, busybox, silent.Listener.Addr().String()+"/missing"))}
	spec.Compose.PullTimeout = 100 * time.Millisecond
	_, err := p.Start(t.Context(), spec)
	conformance.WantError(t, err, fumehood.ErrLimit)
}

func TestProvider_Prepare_missing(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	const text = "services: {default: {image: fumehood-test/none}, b: {image: fumehood-test/none}, other: {image: fumehood-test/nothing}, has: {image: " + busybox + "}}"
	for name, c := range map[string]struct {
		text     string
		prebuilt bool
		want     string
	}{
		"prebuilt": {text, true, "missing: fumehood-test/none (b, default); fumehood-test/nothing (other)"},
		"never":    {strings.ReplaceAll(text, "fumehood-test/none", "fumehood-test/none, pull_policy: never"), false, "missing: fumehood-test/none (b, default)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fumehood.Spec{Compose: composeFile(t, c.text)}
			spec.Compose.Prebuilt = c.prebuilt
			_, err := p.Prepare(t.Context(), spec, provider.PrepareOptions{})
			conformance.WantError(t, err, fumehood.ErrConfig)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
