//go:build unix

package workspace

import (
	"archive/tar"
	"bytes"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The time to unpack a chain of folders grows with its length, not with the square of it.
func TestRestore_deep(t *testing.T) {
	var heads []tar.Header
	dir := ""
	for i := range 1500 {
		dir = path.Join(dir, "d")
		head := dirHead(dir)
		head.ModTime = time.Unix(int64(i), 0)
		heads = append(heads, head)
		if i%100 == 50 { // other folders on the way, after which the chain goes on
			heads = append(heads, tar.Header{Name: dir + "/f", Size: 3}, dirHead(dir+"/c"), dirHead(dir+"/c/c"), tar.Header{Name: dir + "/c/c/f"})
		}
	}
	heads = append(heads, dirHead("a"), dirHead("d/e"), tar.Header{Name: strings.Repeat("d/", 700) + "late"})
	data := stream(t, heads...)
	to := filepath.Join(t.TempDir(), "new")
	began := time.Now()
	m, err := Restore(t.Context(), bytes.NewReader(data), to, RestoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second { // less than a second on an idle machine
		t.Errorf("it took %v", took)
	}
	if len(m.Entries) != len(heads) {
		t.Errorf("%d entries, want %d", len(m.Entries), len(heads))
	}
	if _, again := snapshot(t, to, CreateOptions{}); again.Hash() != m.Hash() {
		t.Error("the tree on disk differs")
	}
}

func TestLevels(t *testing.T) {
	for name, want := range map[string]int{"": -1, "a": -1, "a/b": -1, "a/b/c": 3, "a/bb/c/d": 4} {
		if got := levels(name, 2); got != want {
			t.Errorf("%q: got %d, want %d", name, got, want)
		}
	}
}
