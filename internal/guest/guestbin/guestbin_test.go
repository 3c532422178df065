package guestbin

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/guestbin/source"
)

func TestFor(t *testing.T) {
	for _, arch := range Architectures {
		b, err := For(t.Context(), arch, slog.New(slog.NewTextHandler(t.Output(), nil)))
		if err != nil {
			t.Fatal(err)
		}
		program := programOf(t, b)
		if len(program) > 4_000_000 {
			t.Errorf("%s: %d bytes, at most 4 MB are allowed", arch, len(program))
		}
		if !bytes.HasPrefix(program, []byte("\x7fELF")) || bytes.Contains(program, []byte("/lib64/ld-linux")) {
			t.Errorf("%s: not a static ELF program", arch)
		}
		if !Built(arch) || sum(program) != b.SHA256 || !strings.HasPrefix(b.SHA256, b.Version) || len(b.Version) != 12 {
			t.Errorf("%s: Built is %t, version %s", arch, Built(arch), b.Version)
		}
	}
	if _, err := For(t.Context(), "mips", slog.New(slog.DiscardHandler)); !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), "mips") {
		t.Errorf("a guest for mips: %v", err)
	}
}

func programOf(t *testing.T, b Binary) []byte {
	t.Helper()
	program, err := b.Program()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// TestFiles checks that the embedded sources are complete, so that the go command can build the guest from them.
func TestFiles(t *testing.T) {
	files, err := source.Files()
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := source.CompiledFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if path, ok := strings.CutPrefix(name, "internal/"); ok && !compiled[name] {
			t.Errorf("internal/sources.go embeds %s, which the guest does not need", path)
		}
	}
	for name := range compiled {
		if _, ok := files[name]; !ok {
			t.Errorf("%s is missing among the sources: add it to internal/sources.go", name)
		}
	}
	want, err := source.Sys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("source/sys.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("source/sys.txtar is not what go.mod requires: run `go generate ./internal/guest/guestbin` and commit it")
	}
}

// isolated gives the test its own cache folder.
func isolated(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{"HOME": dir, "XDG_CACHE_HOME": filepath.Join(dir, "cache")} {
		t.Setenv(name, value)
	}
}

// cached opens the cache of a test and stores a guest in it.
func cached(t *testing.T, program string) *cache {
	t.Helper()
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	if err := c.write("amd64", []byte(program)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCache(t *testing.T) {
	isolated(t)
	c := cached(t, "program")
	info, err := os.Stat(c.all)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the cache folder: %v, %v", info, err)
	}
	log := slog.New(slog.DiscardHandler)
	if got, err := fromCache(t.Context(), "amd64", log); err != nil || string(programOf(t, got)) != "program" {
		t.Fatalf("got %v, %v", got, err)
	}
	if _, err := c.guest("arm64"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a guest that is not cached: %v", err)
	}
}

// Files that other users could have written are not used, and the error names them.
func TestCache_refuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, c *cache) error
		says  string // "" means that the guest counts as not cached
	}{
		"another program": {func(_ *testing.T, c *cache) error { return c.root.WriteFile("linux-amd64", []byte("evil"), 0o600) }, ""},
		"half a program":  {func(_ *testing.T, c *cache) error { return c.root.WriteFile("linux-amd64", []byte("prog"), 0o600) }, ""},
		"no sum":          {func(_ *testing.T, c *cache) error { return c.root.Remove("linux-amd64.sha256") }, ""},
		"a folder that others may enter": {
			func(_ *testing.T, c *cache) error { return os.Chmod(c.all, 0o755) }, "has the mode 0755: others may use it",
		},
		"a program others may write": {
			func(_ *testing.T, c *cache) error { return c.root.Chmod("linux-amd64", 0o622) }, "has the mode 0622: others may use it",
		},
		"a link in place of the program": {
			func(t *testing.T, c *cache) error {
				target := filepath.Join(t.TempDir(), "program")
				return errors.Join(os.WriteFile(target, []byte("program"), 0o600), c.root.Remove("linux-amd64"), os.Symlink(target, filepath.Join(c.root.Name(), "linux-amd64")))
			},
			"is not a regular file",
		},
		"a link in place of the folder": {
			func(t *testing.T, c *cache) error {
				target := filepath.Join(t.TempDir(), "guests")
				return errors.Join(os.Rename(c.all, target), os.Symlink(target, c.all))
			},
			"is not a folder",
		},
		"another owner of the folder":  {func(t *testing.T, c *cache) error { return toNobody(t, c.all) }, "does not belong to this user"},
		"another owner of the program": {func(t *testing.T, c *cache) error { return toNobody(t, filepath.Join(c.root.Name(), "linux-amd64")) }, "does not belong to this user"},
	} {
		t.Run(name, func(t *testing.T) {
			isolated(t)
			t.Setenv("PATH", t.TempDir()) // nothing can be built
			if err := c.spoil(t, cached(t, "program")); err != nil {
				t.Fatal(err)
			}
			if c.says == "" {
				c.says = "no Go toolchain"
			}
			got, err := fromCache(t.Context(), "amd64", slog.New(slog.DiscardHandler))
			var typed *fumehood.Error
			if !errors.Is(err, fumehood.ErrConfig) || !errors.As(err, &typed) || !strings.Contains(err.Error(), c.says) || typed.Hint == "" {
				t.Errorf("got %v, %v, want an ErrConfig with a hint that says %q", got, err, c.says)
			}
		})
	}
}

func toNobody(t *testing.T, path string) error {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	return os.Chown(path, 65534, 65534)
}

// Two processes that need the guest at once build it only once.
func TestFromCache_waits(t *testing.T) {
	isolated(t)
	c := cached(t, "program")
	if err := c.root.Remove("linux-amd64"); err != nil {
		t.Fatal(err)
	}
	lock := newLock(c, "amd64")
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fromCache(ctx, "amd64", slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait whose context has ended: %v", err)
	}
	type answer struct {
		guest Binary
		err   error
	}
	answers := make(chan answer)
	go func() {
		guest, err := fromCache(t.Context(), "amd64", slog.New(slog.DiscardHandler))
		answers <- answer{guest, err}
	}()
	if err := errors.Join(c.write("amd64", []byte("built by another")), lock.Unlock()); err != nil {
		t.Fatal(err)
	}
	if a := <-answers; a.err != nil || string(programOf(t, a.guest)) != "built by another" {
		t.Errorf("got %v, %v", a.guest, a.err)
	}
}

// Build needs no network and no module cache, and always returns the same bytes.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the guest")
	}
	for _, name := range []string{"GOMODCACHE", "GOPATH"} {
		t.Setenv(name, t.TempDir())
	}
	dir := t.TempDir()
	if err := Embed(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	m, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range Architectures {
		program, err := source.Build(t.Context(), arch)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(m, []byte(sum(program))) {
			t.Errorf("%s: a second build has the SHA-256 %s, the manifest says\n%s", arch, sum(program), m)
		}
	}
	before, err := os.Stat(filepath.Join(dir, manifestName))
	if err != nil {
		t.Fatal(err)
	}
	if err := Embed(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(filepath.Join(dir, manifestName)); err != nil || after.ModTime() != before.ModTime() {
		t.Errorf("a current folder was written again: %v", err)
	}
}
