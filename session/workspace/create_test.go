//go:build unix

package workspace

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
)

var then = time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)

// tree creates a folder with files, given by path. A path that ends in a slash is a folder. A content that begins
// with "->" is the target of a link.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		switch target, link := strings.CutPrefix(content, "->"); {
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(file, 0o755))
		case link:
			err = errors.Join(err, os.Symlink(target, file))
		default:
			err = errors.Join(err, os.WriteFile(file, []byte(content), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func snapshot(t testing.TB, dir string, opts CreateOptions) ([]byte, *Manifest) {
	t.Helper()
	var b bytes.Buffer
	m, err := Create(t.Context(), &b, dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), m
}

func paths(m *Manifest) string {
	var all []string
	for _, e := range m.Entries {
		all = append(all, e.Path)
	}
	return strings.Join(all, " ")
}

func TestCreate_roundTrip(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.txt": "text", "run": "#!", "sub/deep/x": "x", "sub-y": "y", "empty/": "", "na me\n\xff%": "odd", "link": "->sub/deep/x",
		"sub/up": "->../a.txt", "large": strings.Repeat("0123456789", 100_000),
	})
	for name, mode := range map[string]fs.FileMode{"run": 0o755 | fs.ModeSetuid, "a.txt": 0o600, "sub/deep": 0o555, "empty": 0o700} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.txt", "sub/deep/x", "sub/deep", "empty"} {
		if err := os.Chtimes(filepath.Join(dir, name), then, then.Add(900*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "sub/deep"), 0o755) })
	for _, c := range []Compression{None, Gzip, XZ, Zstd} {
		t.Run(string(c), func(t *testing.T) {
			data, made := snapshot(t, dir, CreateOptions{Compression: c})
			if got, want := paths(made), "a.txt empty large link na me\n\xff% run sub sub/deep sub/deep/x sub/up sub-y"; got != want {
				t.Errorf("order: got %q, want %q", got, want)
			}
			again := filepath.Join(t.TempDir(), "again")
			restored, err := Restore(t.Context(), bytes.NewReader(data), again, RestoreOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(filepath.Join(again, "sub/deep"), 0o755) })
			if !reflect.DeepEqual(restored, made) {
				t.Errorf("restored %+v\nmade %+v", restored, made)
			}
			_, scanned := snapshot(t, again, CreateOptions{Compression: None})
			for _, m := range []*Manifest{scanned, made} { // the time of a link is not kept
				for i := range m.Entries {
					if m.Entries[i].Type == Link {
						m.Entries[i].ModTime = time.Time{}
					}
				}
			}
			if !reflect.DeepEqual(scanned, made) {
				t.Errorf("on disk %+v\nmade %+v", scanned, made)
			}
			info, err := os.Stat(filepath.Join(again, "run"))
			if err != nil || info.Mode() != 0o755 {
				t.Errorf("set-uid program: mode %v, %v", info.Mode(), err)
			}
			info, err = os.Stat(filepath.Join(again, "sub/deep"))
			if err != nil || !info.ModTime().Equal(then) || info.Mode().Perm() != 0o555 {
				t.Errorf("folder: time %v, mode %v, %v", info.ModTime(), info.Mode(), err)
			}
		})
	}
}

func TestCreate_deterministic(t *testing.T) {
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("d%d/f%d", i%7, i)] = strings.Repeat(fmt.Sprint(i), 3000)
	}
	one, two := tree(t, files), tree(t, files)
	for _, dir := range []string{one, two} {
		err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Chtimes(p, then, then)) })
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []Compression{None, Gzip, XZ, Zstd} {
		part := ""
		if c == XZ { // slow, and single-threaded
			part = "d0"
		}
		a, _ := snapshot(t, filepath.Join(one, part), CreateOptions{Compression: c})
		b, _ := snapshot(t, filepath.Join(two, part), CreateOptions{Compression: c})
		if !bytes.Equal(a, b) {
			t.Errorf("%s: the snapshots differ", c)
		}
	}
}

func TestManifest_Hash(t *testing.T) {
	hash := func(change func(dir string) error) string {
		dir := tree(t, map[string]string{"a": "1", "d/b": "2", "l": "->a"})
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		_, m := snapshot(t, dir, CreateOptions{})
		return m.Hash()
	}
	same := hash(func(string) error { return nil })
	if got := hash(func(dir string) error { return os.Chtimes(filepath.Join(dir, "a"), then, then) }); got != same {
		t.Error("the time changes the hash")
	}
	// the sha256sum of the same bytes, assembled by hand
	var text string
	for _, e := range []string{"file 0644 6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b a", "dir 0755  d", "file 0644 d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35 d/b", "link 0777 a l"} {
		text += strings.ReplaceAll(e, " ", "\x00") + "\x00"
	}
	cmd := exec.Command("sha256sum")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), same) {
		t.Errorf("got hash %s, sha256sum: %s, %v", same, out, err)
	}
	for name, change := range map[string]func(dir string) error{
		"content": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("3"), 0o644) },
		"mode":    func(dir string) error { return os.Chmod(filepath.Join(dir, "a"), 0o600) },
		"name":    func(dir string) error { return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "x")) },
		"folder":  func(dir string) error { return os.Mkdir(filepath.Join(dir, "new"), 0o755) },
		"target": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "l")), os.Symlink("d", filepath.Join(dir, "l")))
		},
	} {
		if hash(change) == same {
			t.Errorf("another %s does not change the hash", name)
		}
	}
}

func TestCreate_globs(t *testing.T) {
	dir := tree(t, map[string]string{"a.py": "", "b.txt": "", "pkg/c.py": "", "pkg/d.txt": "", "pkg/deep/e.py": "", "build/x/f.py": "", "none/": ""})
	all := "a.py b.txt build build/x build/x/f.py none pkg pkg/c.py pkg/d.txt pkg/deep pkg/deep/e.py"
	for _, c := range []struct {
		keep, ignore []string
		want         string
	}{
		{nil, nil, all},
		{[]string{}, nil, ""},
		{[]string{"*.py"}, nil, "a.py"},
		{[]string{"**/*.py"}, nil, "a.py build build/x build/x/f.py pkg pkg/c.py pkg/deep pkg/deep/e.py"},
		{[]string{"**/*.py"}, []string{"build"}, "a.py pkg pkg/c.py pkg/deep pkg/deep/e.py"},
		{[]string{"pkg"}, nil, "pkg pkg/c.py pkg/d.txt pkg/deep pkg/deep/e.py"},
		{[]string{"pkg/deep/**"}, nil, "pkg pkg/deep pkg/deep/e.py"},
		{[]string{"a.py"}, []string{"*.py"}, ""},
		{nil, []string{"**/*.py", "none"}, "b.txt build build/x pkg pkg/d.txt pkg/deep"},
		{nil, []string{"pkg/**", "build", "{a,b}.*"}, "none"},
		{[]string{"none"}, nil, "none"},
	} {
		if _, m := snapshot(t, dir, CreateOptions{Keep: c.keep, Ignore: c.ignore}); paths(m) != c.want {
			t.Errorf("keep %q, ignore %q: %q, want %q", c.keep, c.ignore, paths(m), c.want)
		}
	}
	for _, bad := range []string{"", "/a", "a/", "./a", "../a", "a//b", "[a", "a/../b"} {
		if _, err := Create(t.Context(), io.Discard, dir, CreateOptions{Ignore: []string{bad}}); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("glob %q: got %v", bad, err)
		}
		if err := (CreateOptions{Keep: []string{bad}}).Validate(); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("glob %q is accepted: %v", bad, err)
		}
	}
}

func TestCreate_skipped(t *testing.T) {
	dir := tree(t, map[string]string{"d/a": "1"})
	if err := syscall.Mkfifo(filepath.Join(dir, "d/pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Link(filepath.Join(dir, "d/a"), filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	data, m := snapshot(t, dir, CreateOptions{})
	if want := []Skipped{{"d/pipe", "pipe"}, {"sock", "socket"}}; !slices.Equal(m.Skipped, want) {
		t.Errorf("skipped: %v", m.Skipped)
	}
	read, err := Read(t.Context(), bytes.NewReader(data), Limits{})
	if err != nil || paths(read) != "d d/a hard" || read.Entries[2].Size != 1 { // a hard link becomes a separate file
		t.Errorf("included: %s, %v", paths(read), err)
	}
}

func TestCreate_links(t *testing.T) {
	outside := tree(t, map[string]string{"file": "the secret"})
	dir := tree(t, map[string]string{"a/file": "mine", "dir": "->" + outside, "link": "->" + outside + "/file"})
	if _, m := snapshot(t, dir, CreateOptions{}); paths(m) != "a a/file dir link" || m.Entries[2].Type != Link || m.Entries[3].Type != Link {
		t.Errorf("%+v", m)
	}
	// not even when a folder turns into a link meanwhile
	done, swapped := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-done:
				swapped <- nil
				return
			default:
				err = errors.Join(os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "b")), os.Symlink(outside, filepath.Join(dir, "a")),
					os.Remove(filepath.Join(dir, "a")), os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")))
			}
		}
		swapped <- err
	}()
	for range 500 {
		var b bytes.Buffer
		_, _ = Create(t.Context(), &b, dir, CreateOptions{Compression: None}) // may fail, because the folder changes
		if bytes.Contains(b.Bytes(), []byte("the secret")) {
			t.Fatal("a file outside of the folder was read")
		}
	}
	close(done)
	if err := <-swapped; err != nil {
		t.Fatal(err)
	}
}

func TestBzip2_readOnly(t *testing.T) {
	dir := tree(t, map[string]string{"a": "1"})
	if _, err := Create(t.Context(), io.Discard, dir, CreateOptions{Compression: Bzip2}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if _, err := Create(t.Context(), io.Discard, dir, CreateOptions{Compression: "rar"}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("%v", err)
	}
	f, err := os.Open("testdata/hello.tar.bz2")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if m, err := Read(t.Context(), f, Limits{}); err != nil || paths(m) != "hello" {
		t.Errorf("%v, %v", m, err)
	}
}

// writer calls a function on the first write.
type writer struct{ first func() }

func (w *writer) Write(p []byte) (int, error) {
	if w.first != nil {
		w.first()
		w.first = nil
	}
	return len(p), nil
}

func TestCreate_fileChanges(t *testing.T) {
	for name, change := range map[string]func(file string) error{
		"grows":   func(file string) error { return os.Truncate(file, 9<<20) },
		"shrinks": func(file string) error { return os.Truncate(file, 1<<20) },
		"is written": func(file string) error {
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.Write([]byte("x"))
			return errors.Join(err, f.Close(), os.Chtimes(file, then, then))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, map[string]string{"large": strings.Repeat("x", 8<<20)})
			file := filepath.Join(dir, "large")
			w := &writer{func() {
				if err := change(file); err != nil {
					t.Error(err)
				}
			}}
			_, err := Create(t.Context(), w, dir, CreateOptions{Compression: None})
			if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "read large: it changed") {
				t.Errorf("%v", err)
			}
		})
	}
}

// Root can read every file, so the test runs itself as another user.
func TestCreate_unreadableFiles(t *testing.T) {
	if dir := os.Getenv("WORKSPACE_TEST_UNREADABLE"); dir != "" {
		_, err := Create(t.Context(), io.Discard, dir, CreateOptions{})
		if !errors.Is(err, fumehood.ErrPermission) {
			t.Errorf("%v", err)
		}
		for _, name := range []string{"read b: permission denied", "read secret: permission denied", "and 2 more"} {
			if !strings.Contains(fmt.Sprint(err), name) {
				t.Errorf("%v lacks %q", err, name)
			}
		}
		return
	}
	content := map[string]string{"a": "1", "b": "2", "secret/c": "3"}
	for i := range 10 {
		content[fmt.Sprintf("t%d", i)] = ""
	}
	dir := tree(t, content)
	for name := range content {
		if name != "a" && name != "secret/c" {
			if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(dir, "secret"), 0), os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(filepath.Dir(dir), "program")
	self, err := os.ReadFile(os.Args[0])
	if err := errors.Join(err, files.WriteProgram(program, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestCreate_unreadableFiles$")
	cmd.Env = append(os.Environ(), "WORKSPACE_TEST_UNREADABLE="+dir, "TMPDIR=/tmp", "GOCOVERDIR=")
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestContext_canceled(t *testing.T) {
	dir := tree(t, map[string]string{"a": "1"})
	data, _ := snapshot(t, dir, CreateOptions{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err := Create(ctx, io.Discard, dir, CreateOptions{})
	again := filepath.Join(t.TempDir(), "again")
	_, rerr := Restore(ctx, bytes.NewReader(data), again, RestoreOptions{})
	_, derr := Diff(ctx, FromDir(dir, CreateOptions{}), FromDir(dir, CreateOptions{}))
	werr := WriteInputs(ctx, dir, []Input{{Path: "b", Content: []byte("2")}})
	for i, err := range []error{err, rerr, derr, werr} {
		if !errors.Is(err, fumehood.ErrCanceled) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("%d: %v", i, err)
		}
	}
	if _, err := os.Stat(again); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func TestCreate_invalidFolders(t *testing.T) {
	file := filepath.Join(tree(t, map[string]string{"a": "1"}), "a")
	for dir, class := range map[string]error{"/nowhere/at/all": fumehood.ErrNotFound, file: fumehood.ErrNotDirectory} {
		if _, err := Create(t.Context(), io.Discard, dir, CreateOptions{}); !errors.Is(err, class) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	deep := t.TempDir()
	t.Chdir(deep)
	for range 22 { // deeper than the longest path
		if err := errors.Join(os.MkdirAll(strings.Repeat("d/", 100), 0o755), os.Chdir(strings.Repeat("d/", 100))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Create(t.Context(), io.Discard, deep, CreateOptions{}); !errors.Is(err, fumehood.ErrLimit) {
		t.Errorf("%v", err)
	}
}

// Tar can read our snapshots, and we can read archives that tar writes.
func TestCreate_tarCompatible(t *testing.T) {
	dir := tree(t, map[string]string{"a": "1", "d/" + strings.Repeat("long", 50) + "/b": "2", "d/l": "->../a"})
	data, m := snapshot(t, dir, CreateOptions{Compression: None})
	again := t.TempDir()
	cmd := exec.Command("tar", "-xf", "-", "-C", again)
	cmd.Stdin = bytes.NewReader(data)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, got := snapshot(t, again, CreateOptions{}); got.Hash() != m.Hash() {
		t.Error("tar unpacked a different tree")
	}
	for _, args := range [][]string{{"-C", dir, "-cf", "-", "."}, {"-C", dir, "-cf", "-", "a", "d/l", "d/" + strings.Repeat("long", 50) + "/b"}, {"--format=pax", "-C", dir, "-czf", "-", "a", "d"}, {"-C", dir, "-cJf", "-", "a", "d"}} {
		out, err := exec.Command("tar", args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(t.Context(), bytes.NewReader(out), Limits{})
		if err != nil || got.Hash() != m.Hash() {
			t.Errorf("%q: %v, %+v", args, err, got)
		}
	}
	if h, err := tar.NewReader(bytes.NewReader(data)).Next(); err != nil || h.Uid != 0 || h.Uname != "" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestCreateOptions_Take(t *testing.T) {
	dir := tree(t, map[string]string{"a/x": "", "a/y": "", "b/c/x": "", "b/d/y": "", "e/x": "", "x": "", "empty/": ""})
	if os.Geteuid() != 0 {
		if err := os.Chmod(filepath.Join(dir, "e"), 0); err != nil {
			t.Fatal(err)
		}
	}
	asked := map[string]bool{}
	_, m := snapshot(t, dir, CreateOptions{Ignore: []string{"a"}, Take: func(path string) (take, below bool) {
		asked[path] = true
		return strings.HasSuffix(path, "x"), path != "e"
	}})
	if got, want := paths(m), "b b/c b/c/x x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if asked["a"] || asked["e/x"] || !asked["empty"] {
		t.Errorf("asked about %v", asked)
	}
}
