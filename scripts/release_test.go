//go:build unix

package scripts_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/fumehood/fumehood/test/tier"
)

const (
	thisModule = "github.com/fumehood/fumehood"
	testTag    = "v0.0.1-test"
)

// run runs a program in a folder and returns its output. The program must succeed.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...) // cleanup runs programs too
	cmd.Dir = dir
	if cmd.Env = env; env == nil {
		cmd.Env = os.Environ()
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository copies the tree, including uncommitted changes, into a new repository and commits it.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.Trim(run(t, "..", nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // removed and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"config", "user.name", "test"}, {"config", "user.email", "test@example.com"}, {"add", "."}, {"commit", "-qm", "tree"},
	} {
		run(t, dir, nil, "git", args...)
	}
	return dir
}

// proxy serves the tag of a repository as a module, and returns an environment in which go finds it.
func proxy(t *testing.T, repo string) []string {
	t.Helper()
	dir := t.TempDir()
	versions := filepath.Join(dir, filepath.FromSlash(thisModule), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := modzip.CreateFromVCS(&archive, module.Version{Path: thisModule, Version: testTag}, repo, testTag, ""); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(repo, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list": []byte(testTag + "\n"), testTag + ".info": fmt.Appendf(nil, `{"Version":%q}`, testTag), testTag + ".mod": mod, testTag + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The version is not a real one, so use a separate module cache. Other modules come from the usual cache.
	cache := t.TempDir()
	downloaded := run(t, ".", nil, "go", "env", "GOMODCACHE") + "/cache/download"
	// The cache is read-only.
	t.Cleanup(func() { run(t, ".", append(os.Environ(), "GOMODCACHE="+cache), "go", "clean", "-modcache") })
	return append(os.Environ(),
		"GOMODCACHE="+cache, "GOPROXY=file://"+dir+",file://"+downloaded+","+run(t, ".", nil, "go", "env", "GOPROXY"),
		"GONOSUMDB="+thisModule, "GOFLAGS=-trimpath", "GOWORK=off", "GOBIN="+filepath.Join(dir, "bin"))
}

// bare returns the environment of a machine without a Go toolchain and without a cache.
func bare(t *testing.T) []string {
	t.Helper()
	return []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
}

// builds is what a program logs when it builds the guest.
const builds = "building the guest once"

const userProgram = `package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"` + thisModule + `"
	"` + thisModule + `/provider/local"
)

func main() {
	ctx := context.Background()
	p, err := local.New(local.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		panic(err)
	}
	sb, err := p.Start(ctx, fumehood.Spec{})
	if err != nil {
		panic(err)
	}
	defer sb.Close(ctx)
	res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"sh", "-c", "echo ran"}})
	if err != nil {
		panic(err)
	}
	fmt.Print(res.Stdout.Text())
}
`

func TestRelease(t *testing.T) {
	tier.Need(t, tier.CI)
	repo := repository(t)
	head := run(t, repo, nil, "git", "rev-parse", "HEAD")
	run(t, repo, nil, "scripts/release", "tag", testTag)
	if now := run(t, repo, nil, "git", "rev-parse", "HEAD"); now != head {
		t.Errorf("the branch has moved from %s to %s", head, now)
	}
	added := run(t, repo, nil, "git", "diff", "--name-only", "HEAD", testTag)
	want := "internal/guest/guestbin/embedded/linux-amd64.gz\ninternal/guest/guestbin/embedded/linux-arm64.gz\ninternal/guest/guestbin/embedded/manifest.json"
	if added != want {
		t.Errorf("the tag adds\n%s\nwant\n%s", added, want)
	}
	env := proxy(t, repo)

	t.Run("go_get", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(userProgram), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"mod", "init", "example.com/user"}, {"get", thisModule + "/provider/local@" + testTag}, {"build", "-o", "user", "."}} {
			run(t, dir, env, "go", args...)
		}
		if out := run(t, dir, bare(t), "./user"); !strings.HasSuffix(out, "\nran") || strings.Contains(out, builds) {
			t.Errorf("the program printed %q", out)
		}
	})
	t.Run("go_install", func(t *testing.T) {
		tier.Need(t, tier.All)
		run(t, t.TempDir(), env, "go", "install", thisModule+"/cmd/fumehood@"+testTag)
		bin := ""
		for _, kv := range env {
			if v, ok := strings.CutPrefix(kv, "GOBIN="); ok {
				bin = v
			}
		}
		runs(t, filepath.Join(bin, "fumehood"))
	})
	t.Run("binaries", func(t *testing.T) {
		tier.Need(t, tier.All)
		run(t, repo, nil, "scripts/release", "binaries", testTag)
		if got := strings.Count(run(t, filepath.Join(repo, "dist"), nil, "sha256sum", "--check", "SHA256SUMS"), ": OK"); got != 4 {
			t.Errorf("SHA256SUMS has %d programs", got)
		}
		runs(t, filepath.Join(repo, "dist", "fumehood-"+testTag+"-"+runtime.GOOS+"-"+runtime.GOARCH))
	})
}

// runs checks that a program contains its version and the guests, and that it runs a command.
func runs(t *testing.T, program string) {
	t.Helper()
	if out := run(t, t.TempDir(), bare(t), program, "version"); !strings.Contains(out, testTag) || strings.Contains(out, "first use") {
		t.Errorf("version prints %s", out)
	}
	if out := run(t, t.TempDir(), bare(t), program, "run", "--provider", "local", "--", "echo", "ran"); !strings.HasSuffix(out, "ran") {
		t.Errorf("run prints %s", out)
	}
}

// A program without an embedded guest builds the guest at first use, and reports that once. It needs only a Go
// toolchain: no network, no module cache, no checkout.
func TestFirstUse(t *testing.T) {
	tier.Need(t, tier.CI)
	dir := t.TempDir()
	source := filepath.Join(dir, "user.go")
	if err := os.WriteFile(source, []byte(userProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	embedded, err := filepath.Abs("../internal/guest/guestbin/embedded")
	if err != nil {
		t.Fatal(err)
	}
	main, err := filepath.Abs("../cmd/first-use/main.go")
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	text := fmt.Sprintf(`{"Replace": {%q: %q, %q: ""}}`, main, source, filepath.Join(embedded, "manifest.json"))
	if err := os.WriteFile(overlay, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "user")
	run(t, "..", nil, "go", "build", "-trimpath", "-overlay", overlay, "-o", program, "./cmd/first-use")

	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = bare(t)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no Go toolchain") {
		t.Errorf("without a toolchain: %v\n%s", err, out)
	}
	goRoot := run(t, ".", nil, "go", "env", "GOROOT")
	env := append(bare(t), "GOCACHE="+run(t, ".", nil, "go", "env", "GOCACHE"), "GOMODCACHE="+filepath.Join(dir, "none"), "GOPROXY=off")
	env[0] += ":" + filepath.Join(goRoot, "bin")
	for i := range 2 {
		out := run(t, dir, env, program)
		if found := strings.Contains(out, builds); !strings.HasSuffix(out, "\nran") || found != (i == 0) {
			t.Errorf("run %d printed %q", i+1, out)
		}
	}
}
