package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fumehood/fumehood/internal/image"
)

// TestImageBuild_name builds specs whose docker.image is the name of a foreign image, a name of Fumehood's own, or an
// unused name.
func TestImageBuild_name(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	first, dir := program(t)
	ctx := context.WithoutCancel(t.Context())
	const foreign, own = "fh-name-of-another:cli-test", "fh-name-of-ours:cli-test"
	base, found, err := e.Image(ctx, "fumehood-test/busybox")
	if err != nil || !found {
		t.Fatalf("no test image: %v", err)
	}
	if err := e.Tag(ctx, base.ID, foreign); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Untag(ctx, foreign); err != nil {
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
	// No other test uses these names, since a name moves if the check is broken.
	for _, c := range []struct{ image, says string }{
		{foreign, "the name belongs to an image that this user's Fumehood did not build"},
		{"docker.io/library/" + foreign, "the name belongs to an image that this user's Fumehood did not build"},
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
	// Unused names could belong to anybody. The second one is a frontend, for "# syntax=docker/dockerfile:1.987".
	for _, image := range []string{own, "docker/dockerfile:1.987", foreign} {
		was := idOf(image)
		if out, err := build(image, one); err != nil {
			t.Errorf("%s: %v\n%s", image, err, out)
		}
		if now := idOf(image); now != was {
			t.Errorf("%s was %q and is %q", image, was, now)
		}
	}
	for _, text := range []string{one, two} { // the second time, the name belongs to the image built here
		if out, err := build(own, text, "--allow-unsafe"); err != nil || idOf(own) == "" {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestImageBuild_hostNetwork checks that builds cannot reach a server on the host's loopback address,
// neither from a Dockerfile nor from ONBUILD steps of the base image. The last builds are allowed to, which shows that
// the server can be reached.
func TestImageBuild_hostNetwork(t *testing.T) {
	t.Parallel()
	e := needDocker(t)
	first, dir := program(t)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = fmt.Fprint(w, "of the host")
	}))
	t.Cleanup(server.Close)
	write := func(name, format string, a ...any) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, format, a...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.WithoutCancel(t.Context())
	const trigger = "fh-onbuild:cli-test"
	var content bytes.Buffer
	w, text := tar.NewWriter(&content), fmt.Appendf(nil, "FROM fumehood-test/busybox\nONBUILD ADD %s/ /got\n", server.URL)
	err := w.WriteHeader(&tar.Header{Name: "Dockerfile", Mode: 0o600, Size: int64(len(text))})
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		_, err = e.Build(ctx, image.Order{Build: image.Build{Tags: []string{trigger}, Dockerfile: "Dockerfile"}}, &content)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Untag(ctx, trigger); err != nil {
			t.Error(err)
		}
	})
	run := func(ctx context.Context, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "fumehood", args...)
		cmd.Env, cmd.Dir = first.Env, dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	write("Dockerfile", "FROM fumehood-test/busybox\nARG URL=%s\nADD $URL/ /got\n", server.URL)
	write("compose.yaml", "services:\n  web:\n    build: {network: none, dockerfile_inline: \"FROM fumehood-test/busybox\\nADD %s/ /got\\n\"}\n    command: sleep infinity\n", server.URL)
	write("on.Dockerfile", "FROM %s\n", trigger)
	write("env.yaml", "type: docker\nname: fh-fetch\ndocker: {build: {context: .}}\n")
	write("on.yaml", "type: docker\nname: fh-fetch-on\ndocker: {image: \"%s\"}\n", trigger)
	for _, c := range []struct{ says, args string }{
		{"line 3: ADD $URL/ is not safe", "run -f Dockerfile -- cat /got"},
		{"line 2: ADD " + server.URL + "/ is not safe", "run -f compose.yaml -- cat /got"},
		{"the image " + trigger + " has ONBUILD ADD " + server.URL + "/, which is not safe", "run -f on.Dockerfile -- cat /got"},
		{"line 3: ADD $URL/ is not safe", "image build env.yaml"},
		{"the image " + trigger + " has ONBUILD ADD " + server.URL + "/, which is not safe", "image build on.yaml"},
	} {
		out, err := run(t.Context(), strings.Fields(c.args)...)
		if err == nil || !strings.Contains(out, c.says) || !strings.Contains(out, "--allow-unsafe") {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}

	for _, spec := range []string{"env.yaml", "on.yaml"} {
		t.Cleanup(func() {
			if out, err := run(ctx, "image", "prune", spec, "--all"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
		before := asked.Load()
		out, err := run(t.Context(), "image", "build", spec, "--allow-unsafe")
		if err != nil || !strings.Contains(out, "unsafe, allowed") {
			t.Errorf("%s, allowed: %v\n%s", spec, err, out)
		}
		if asked.Load() == before {
			t.Errorf("%s, allowed: the server was not asked", spec)
		}
	}
}
