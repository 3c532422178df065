package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
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
	var got []string
	for tr := tar.NewReader(&packed); ; {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil || bytes.Contains(text, []byte("secret")) {
			t.Errorf("%s has %q, %v", head.Name, text, err)
		}
		got = append(got, head.Name)
	}
	if want := []string{"x/", "x/a/", "x/b/", "x/b/file"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
