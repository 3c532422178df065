package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/archive"
)

// A link that replaces a directory after it was described leads to nothing outside the tree.
func TestPack_replacedByLink(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	tree, outside := filepath.Join(top, "tree"), filepath.Join(top, "outside")
	if err := errors.Join(os.Mkdir(tree, 0o700), os.Mkdir(outside, 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(outside, "file"), "secret")
	for _, dir := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(tree, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(tree, dir, "file"), "own")
	}
	var packed bytes.Buffer
	w := writer(func(p []byte) (int, error) {
		if bytes.HasPrefix(p, []byte("x/a/\x00")) { // the walk has described it
			if err := errors.Join(os.RemoveAll(tree+"/a"), os.Symlink(outside, tree+"/a")); err != nil {
				t.Error(err)
			}
		}
		return packed.Write(p)
	})
	if err := Pack(w, tree, "x"); err != nil {
		t.Fatal(err)
	}
	got, _ := read(t, &packed)
	if want := []string{"x/", "x/a/", "x/b/", "x/b/file"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// read returns the names in an archive, and the last header. No content may be secret.
func read(t *testing.T, r io.Reader) (names []string, last *tar.Header) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, last
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil || bytes.Contains(text, []byte("secret")) {
			t.Errorf("%s has %q, %v", head.Name, text, err)
		}
		names, last = append(names, head.Name), head
	}
}

func TestPack_special(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	if err := os.Mkdir(filepath.Join(tree, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tree, "d", "file"), "own")
	if err := errors.Join(unix.Mkfifo(filepath.Join(tree, "a b"), 0o600), unix.Mkfifo(filepath.Join(tree, "d", "n\nn\xff"), 0o600)); err != nil {
		t.Fatal(err)
	}
	want := []archive.SkippedFile{{Path: "a b", Kind: "pipe"}, {Path: "d/n\nn\xff", Kind: "pipe"}}
	if unix.Mknod(filepath.Join(tree, "null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) == nil { //nolint:gosec // small; only root may
		want = append(want, archive.SkippedFile{Path: "null", Kind: "device"})
	}
	var packed bytes.Buffer
	if err := Pack(&packed, tree, "x"); err != nil {
		t.Fatal(err)
	}
	names, last := read(t, &packed)
	if !slices.Equal(names, []string{"x/", "x/d/", "x/d/file", "x/"}) {
		t.Errorf("the entries are %q", names)
	}
	if got, count := archive.ReadSkipped(last); !slices.Equal(got, want) || count != len(want) {
		t.Errorf("it lists %q of %d", got, count)
	}
	if err := Pack(io.Discard, filepath.Join(tree, "a b"), "x"); !errors.Is(err, archive.ErrNotRegular) {
		t.Errorf("a pipe alone: %v", err)
	}
}

// Thousands of pipes do not make the list longer than readers accept.
func TestPack_manySpecial(t *testing.T) {
	t.Parallel()
	const count = 2000
	tree := t.TempDir()
	for n := range count {
		if err := unix.Mkfifo(filepath.Join(tree, fmt.Sprintf("%0200d", n)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	if err := Pack(&packed, tree, "x"); err != nil {
		t.Fatal(err)
	}
	_, last := read(t, &packed)
	if got, found := archive.ReadSkipped(last); len(got) < 300 || len(got) > 330 || found != count || packed.Len() > 80<<10 {
		t.Errorf("it lists %d of %d in %d bytes", len(got), found, packed.Len())
	}
}

// A pipe that replaces a file after it was described is as a file that was removed.
func TestPack_replacedByPipe(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	write(t, filepath.Join(tree, "a"), "own")
	write(t, filepath.Join(tree, "b"), "own")
	found := map[string]Entry{}
	if err := Walk(tree, -1, func(e Entry) error {
		if e.Path == "a" {
			file := filepath.Join(tree, "a")
			if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
				t.Error(err)
			}
			f, err := e.open()
			if f != nil || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("opened: %v, %v", f, err)
			}
		}
		found[e.Path] = e
		return nil
	}); err != nil || len(found) != 3 {
		t.Errorf("%d, %v", len(found), err)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Programs cannot prevent that a folder is copied: not by folders that are too deep, nor by paths that are too long.
func TestPack_deep(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	write(t, filepath.Join(tree, "file"), "own")
	for _, name := range []string{"d", strings.Repeat("n", 255)} {
		dir, err := os.OpenRoot(tree)
		for range 300 {
			if err != nil {
				t.Fatal(err)
			}
			err = dir.Mkdir(name, 0o700)
			below, oerr := dir.OpenRoot(name)
			err = errors.Join(err, oerr, dir.Close())
			dir = below
		}
		dir.Close()
	}
	var packed bytes.Buffer
	if err := Pack(&packed, tree, "x"); err != nil {
		t.Fatal(err)
	}
	names, last := read(t, &packed)
	if !slices.Contains(names, "x/file") {
		t.Errorf("the file is missing: %d names", len(names))
	}
	skipped, count := archive.ReadSkipped(last)
	if count != 2 || len(skipped) != 2 || skipped[0].Kind != archive.TooDeep || skipped[1].Kind != archive.TooDeep {
		t.Errorf("got %d files left out: %.100v", count, skipped)
	}
	if len(skipped[0].Path) != 2*maxDepth-1 || len(skipped[1].Path) <= MaxPath || len(skipped[1].Path) > MaxPath+256 {
		t.Errorf("left out at %d and %d bytes", len(skipped[0].Path), len(skipped[1].Path))
	}
}

// Programs cannot prevent that a folder is copied by files that become shorter.
func TestPack_shorter(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	file, size := filepath.Join(tree, "a"), 200<<10
	write(t, file, strings.Repeat("x", size))
	write(t, filepath.Join(tree, "b"), "own")
	var packed bytes.Buffer
	w := writer(func(p []byte) (int, error) {
		if bytes.HasPrefix(p, []byte("t/a\x00")) { // its header
			if err := os.Truncate(file, 10); err != nil {
				t.Error(err)
			}
		}
		return packed.Write(p)
	})
	if err := Pack(w, tree, "t"); err != nil {
		t.Fatal(err)
	}
	content := bytes.Clone(packed.Bytes())
	names, last := read(t, &packed)
	if want := []string{"t/", "t/a", "t/b", "t/"}; !slices.Equal(names, want) {
		t.Errorf("got %q", names)
	}
	if got, _ := archive.ReadSkipped(last); !slices.Equal(got, []archive.SkippedFile{{Path: "a", Kind: archive.Changed}}) {
		t.Errorf("listed %v", got)
	}
	tr := tar.NewReader(bytes.NewReader(content))
	for range 2 {
		if _, err := tr.Next(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(tr)
	if err != nil || !bytes.Equal(text, append([]byte("xxxxxxxxxx"), make([]byte, size-10)...)) {
		t.Errorf("got %d bytes, %v", len(text), err)
	}
}
