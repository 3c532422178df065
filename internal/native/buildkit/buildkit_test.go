//go:build unix

package buildkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/image"
)

// program puts a shell script named buildctl into $PATH, and returns a folder for it.
func program(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := files.WriteProgram(filepath.Join(dir, "buildctl"), []byte("#!/bin/sh\ncd "+dir+"\n"+script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("BUILDKIT_HOST", "tcp://daemon")
	return dir
}

func TestFind(t *testing.T) {
	t.Run("answers", func(t *testing.T) {
		program(t, `test "$*" = "--addr tcp://daemon debug workers"`)
		if c, err := Find(t.Context()); err != nil || c.address != "tcp://daemon" {
			t.Error(c, err)
		}
	})
	t.Run("socket without root", func(t *testing.T) {
		program(t, "exit 0")
		dir := t.TempDir()
		t.Setenv("BUILDKIT_HOST", "")
		t.Setenv("XDG_RUNTIME_DIR", dir)
		socket := filepath.Join(dir, "buildkit", "buildkitd.sock")
		if err := errors.Join(os.Mkdir(filepath.Dir(socket), 0o700), os.WriteFile(socket, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/run/buildkit/buildkitd.sock"); err == nil {
			t.Skip("root's BuildKit comes first")
		}
		if c, err := Find(t.Context()); err != nil || c.address != "unix://"+socket {
			t.Error(c, err)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		program(t, "echo refused >&2; exit 1")
		if _, err := Find(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "tcp://daemon: exit status 1: refused") {
			t.Error(err)
		}
	})
	t.Run("no program", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := Find(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// run has a script build an image, and returns the names of the steps.
func run(t *testing.T, o image.Order, script string) (steps []string, err error) {
	t.Helper()
	program(t, script)
	o.Report = func(step string) { steps = append(steps, step) }
	o.Mask = func(text string) string { return strings.ReplaceAll(text, "secret", "***") }
	c, err := Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return steps, c.Build(t.Context(), o, "/a,b.tar")
}

func TestClient_Build_args(t *testing.T) {
	dir := program(t, "for a; do echo \"$a\"; done >args")
	c, err := Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = c.Build(t.Context(), image.Order{Platform: "linux/arm64", Build: image.Build{
		Tags: []string{"n:1"}, Context: "/c", Dockerfile: "/d/f", Args: map[string]string{"A": "x,y=z"}, Labels: map[string]string{"l": "1"},
		Target: "t", Network: "none", NoCache: true, Secrets: []image.Secret{{ID: "id,env=HOME", File: "/s"}},
	}}, "/a,b.tar")
	text, rerr := os.ReadFile(filepath.Join(dir, "args"))
	if err := errors.Join(err, rerr); err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(`--addr tcp://daemon build --progress rawjson --frontend dockerfile.v0 --local context=/c --local dockerfile=/d
		--output type=oci,"dest=/a,b.tar",name=docker.io/library/n:1,compression=uncompressed --opt build-arg:A=x,y=z --opt filename=f --opt force-network-mode=none
		--opt label:l=1 --opt no-cache= --opt platform=linux/arm64 --opt target=t --secret "id=id,env=HOME",src=/s`)
	if got := strings.Fields(string(text)); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestClient_Build_output(t *testing.T) {
	const vertexes = `cat >&2 <<'END'
{"vertexes":[{"digest":"sha256:1","name":"[internal] load","started":"2026-01-01T00:00:00Z"},{"digest":"sha256:2","name":"[2/2] RUN   secret \u001b[31mx","started":"2026-01-01T00:00:00Z"}]}
{"logs":[{"vertex":"sha256:2","data":"b25lIHNlY3JldAp0d28K"},{"vertex":"sha256:9","data":"eA=="}]}
`
	for name, c := range map[string]struct {
		script, want string
		class        error
	}{
		"built": {vertexes + "END\n", "", nil},
		"exit code": {vertexes + `{"vertexes":[{"digest":"sha256:2","name":"x","error":"process \"/bin/sh -c secret\" did not complete successfully: exit code: 3"}]}
{"vertexes":[{"digest":"sha256:1","error":"context canceled"}]}
error: failed to solve: process
END
exit 1`, "build image: [2/2] RUN *** x: exit code 3; it printed last:\n  one ***\n  two", fumehood.ErrConfig},
		"Dockerfile":   {"echo 'error: failed to solve: dockerfile parse error' >&2; exit 1", "build image: error: failed to solve: dockerfile parse error", fumehood.ErrConfig},
		"no daemon":    {"echo 'error: connection refused' >&2; exit 1", "build image: buildctl: exit status 1: error: connection refused", fumehood.ErrInfrastructure},
		"disk full":    {"echo 'error: failed to solve: no space left on device' >&2; exit 1", "build image: error: failed to solve: no space left on device", fumehood.ErrInfrastructure},
		"endless line": {"head -c 20000000 /dev/zero >&2; exit 1", "build image: buildctl: exit status 1:", fumehood.ErrInfrastructure},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := run(t, image.Order{Build: image.Build{Tags: []string{"n:1"}}}, "case $* in *workers*) exit 0;; esac\n"+c.script)
			if fmt.Sprint(err) != c.want && (err != nil || c.want != "") || !errors.Is(err, c.class) {
				t.Errorf("got %v\nwant %v", err, c.want)
			}
			if strings.Contains(c.script, "RUN") && !slices.Equal(steps, []string{"[2/2] RUN *** x"}) {
				t.Errorf("got steps %q", steps)
			}
		})
	}
}

func TestClient_Build_canceled(t *testing.T) {
	program(t, "case $* in *workers*) exit 0;; esac\nexec sleep 100")
	c, err := Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Build(ctx, image.Order{Build: image.Build{Tags: []string{"n:1"}}}, "x"); !errors.Is(err, fumehood.ErrCanceled) {
		t.Error(err)
	}
}
