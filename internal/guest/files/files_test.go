//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A path may be longer than the kernel accepts in one call.
func TestWalk_deep(t *testing.T) {
	const levels, name = 100, 200
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	top := root.Name()
	for range levels { // 20 KB
		if err := root.Mkdir(strings.Repeat("d", name), 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := root.OpenRoot(strings.Repeat("d", name))
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		root = next
	}
	n, refused := 0, 0
	err = Walk(top, -1, func(e Entry) error {
		if n++; errors.Is(e.Err, syscall.ENAMETOOLONG) {
			refused++
		} else if e.Err != nil {
			t.Error(e.Err)
		}
		return nil
	})
	if err != nil || refused != 1 || n < MaxPath/(name+1) {
		t.Errorf("met %d, refused %d, %v", n, refused, err)
	}
	if err := Remove(top, true); err != nil {
		t.Error(err)
	}
}

// A directory that is replaced by a link after lstat is not read.
func TestWalk_replacedByLink(t *testing.T) {
	top := t.TempDir()
	for _, d := range []string{"outside", "tree", "tree/d", "tree/other"} {
		if err := os.Mkdir(filepath.Join(top, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := os.OpenRoot(filepath.Join(top, "tree"))
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	at := place{tree, "d"}
	described, err := at.lstat()
	if err != nil || at.changed(described) {
		t.Fatal(described, err)
	}
	if err := tree.Rename("d", "moved"); err != nil {
		t.Fatal(err)
	}
	if !at.changed(described) {
		t.Error("the removal was not noticed")
	}
	for _, target := range []string{"other", "../outside"} {
		if err := tree.Symlink(target, "d"); err != nil {
			t.Fatal(err)
		}
		if dir, names, err := at.read(Entry{Path: "d", Info: described}); err == nil {
			dir.Close()
			t.Errorf("%s was read: %q", target, names)
		}
		if !at.changed(described) {
			t.Errorf("the replacement by %s was not noticed", target)
		}
		if err := tree.Remove("d"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWalk_error(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		write(t, filepath.Join(dir, name), "")
	}
	stop := errors.New("enough")
	n := 0
	err := Walk(dir, -1, func(Entry) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 2 {
		t.Errorf("met %d, %v", n, err)
	}
}

func TestCreate_failed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "old")
	broken := errors.New("broken off")
	w, err := Create(file, Options{Mode: 0o600, UID: -1, GID: -1, Atomic: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(broken); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	w, err = Create(filepath.Join(dir, "late"), Options{Mode: 0o600, UID: -1, GID: -1, Atomic: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "late"), 0o700); err != nil { // after Create
		t.Fatal(err)
	}
	if err := w.Finish(nil); !errors.Is(err, syscall.EISDIR) && !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a directory: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("there is %v, %v", entries, err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "old" {
		t.Errorf("got %q, %v", got, err)
	}
}

// setMode must not change the mode of what has replaced the directory.
func TestSetMode_link(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.Mkdir(victim, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	if err := setMode(link, 0o777); err == nil {
		t.Error("the link was followed")
	}
	if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("stat says %v, %v", info, err)
	}
}
