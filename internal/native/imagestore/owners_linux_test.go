package imagestore

import (
	"archive/tar"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
)

// noted are Owners that record what they are asked for.
type noted struct{ files []Owned }

func (n *noted) Set(_ context.Context, _ string, files []Owned) error {
	n.files = append(n.files, files...)
	return nil
}

func (n *noted) Remove(context.Context, string) error { return errors.ErrUnsupported }

// Files of other owners, and those whose mode was changed, get theirs afterwards, whatever was replaced meanwhile.
func TestStore_Get_owners(t *testing.T) {
	owned := func(e entry, uid, gid int, mode int64) entry {
		return e.with(func(h *tar.Header) { h.Uid, h.Gid, h.Mode = uid, gid, mode })
	}
	n := &noted{}
	s, err := Open(filepath.Join(t.TempDir(), "store"), Options{OneOwner: true, Owners: n})
	if err != nil {
		t.Fatal(err)
	}
	i := get(t, s, build(t, layerOf(t,
		owned(dir("."), 0, 1, 0o755), owned(dir("d"), 0, 0, 0o555), owned(file("d/f", "x"), 5, 70000, 0o4755), link("to", "d"),
		owned(file("to/g", "x"), 5, 5, 0o600), owned(link("l", "x"), 6, 6, 0o777), owned(file("twice", "x"), 7, 7, 0o644), file("twice", "y"),
		file("plain", "x"), file(".wh.gone", "").with(func(h *tar.Header) { h.Uid = 8 }), owned(file(".wh..wh..opq", ""), 8, 8, 0o644),
	)).save(t))
	defer i.Close()
	want := []Owned{{"d", 0, 0, 0o555}, {"d/f", 5, 65534, 0o4755}, {"d/g", 5, 5, 0o600}, {"l", 6, 6, -1}}
	if !slices.Equal(n.files, want) {
		t.Errorf("got %v, want %v", n.files, want)
	}
}
