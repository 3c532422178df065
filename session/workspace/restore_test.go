//go:build unix

package workspace

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// stream returns a tar stream with these headers. An entry with a size has that many zero bytes.
func stream(t testing.TB, heads ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range heads {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		h.Mode = 0o755
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, zeros{}, h.Size); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func dirHead(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir} }
func linkHead(name, target string) tar.Header {
	return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
}

// only fails if dir contains anything but these names.
func only(t testing.TB, dir string, names ...string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	var got []string
	for _, d := range all {
		got = append(got, d.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("content of %s: got %q, want %q", dir, got, names)
	}
}

func TestRestore_hostile(t *testing.T) {
	ok := tar.Header{Name: "ok", Size: 3}
	for name, heads := range map[string][]tar.Header{
		"a name that climbs":        {ok, {Name: "../evil"}},
		"a name that climbs later":  {ok, {Name: "a/../../evil"}},
		"a name that is not clean":  {ok, {Name: "a//b"}},
		"an absolute name":          {ok, {Name: "/evil"}},
		"no name":                   {ok, {Name: "."}},
		"an absolute link":          {ok, linkHead("l", "/etc/passwd")},
		"a link that climbs":        {ok, linkHead("d/l", "../../evil")},
		"a link up to the folder":   {ok, linkHead("l", "..")},
		"a link that climbs by one": {dirHead("d"), linkHead("d/x", "."), linkHead("l", "d/x/x/x/../../..")},
		"through a link":            {ok, dirHead("d"), linkHead("l", "d"), {Name: "l/file"}},
		"a link in place of a dir":  {ok, {Name: "d/file"}, linkHead("d", "ok")},
		"a hard link":               {ok, {Name: "h", Linkname: "ok", Typeflag: tar.TypeLink}},
		"a hard link out":           {ok, {Name: "h", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}},
		"a device":                  {ok, {Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"a disk":                    {ok, {Name: "sda", Typeflag: tar.TypeBlock}},
		"a pipe":                    {ok, {Name: "p", Typeflag: tar.TypeFifo}},
		"a file twice":              {ok, ok},
		"a dir twice":               {dirHead("d"), dirHead("d")},
		"a file and a dir":          {ok, dirHead("ok")},
		"a file in a file":          {ok, {Name: "ok/file"}},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			_, err := Restore(t.Context(), bytes.NewReader(stream(t, heads...)), filepath.Join(base, "new"), RestoreOptions{})
			if !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("%v", err)
			}
			only(t, base)
			empty := filepath.Join(base, "empty")
			if err := os.Mkdir(empty, 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := Restore(t.Context(), bytes.NewReader(stream(t, heads...)), empty, RestoreOptions{}); err == nil {
				t.Error("the snapshot was accepted")
			}
			only(t, base, "empty")
			only(t, empty)
			if strings.Contains(name, "link") && strings.Contains(name, "climbs") || name == "an absolute link" {
				return // its index can be read
			}
			if _, err := Read(t.Context(), bytes.NewReader(stream(t, heads...)), Limits{}); name != "a link up to the folder" && !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("Read: %v", err)
			}
		})
	}
}

func TestRestore_anyLinks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	data := stream(t, linkHead("abs", "/etc/passwd"), linkHead("up", "../../x"), linkHead("in", "d/../abs"))
	if _, err := Restore(t.Context(), bytes.NewReader(data), dir, RestoreOptions{AnyLinks: true}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"abs": "/etc/passwd", "up": "../../x", "in": "d/../abs"} {
		if got, err := os.Readlink(filepath.Join(dir, name)); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestRestore_linksInside(t *testing.T) {
	for _, e := range []Entry{
		{Path: "l", Target: "a"},
		{Path: "l", Target: "."},
		{Path: "d/l", Target: ".."},
		{Path: "d/l", Target: "../a/b"},
		{Path: "d/e/l", Target: "../../a"},
		{Path: "l", Target: "..."},
		{Path: "l", Target: "..a"},
		{Path: "d/l", Target: "..//a"},
	} {
		if archive.LeadsOut(e.Path, e.Target) {
			t.Errorf("%s -> %s is rejected", e.Path, e.Target)
		}
	}
	for _, e := range []Entry{{Path: "l", Target: "a/.."}, {Path: "d/l", Target: "../.."}, {Path: "d/l", Target: "..//../a"}, {Path: "l", Target: "/"}} {
		if !archive.LeadsOut(e.Path, e.Target) {
			t.Errorf("%s -> %s is accepted", e.Path, e.Target)
		}
	}
}

func TestRestore_notEmpty(t *testing.T) {
	dir := tree(t, map[string]string{"mine": "1"})
	_, err := Restore(t.Context(), bytes.NewReader(stream(t, tar.Header{Name: "a"})), dir, RestoreOptions{})
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("%v", err)
	}
	only(t, dir, "mine")
	if _, err := Restore(t.Context(), bytes.NewReader(stream(t, tar.Header{Name: "a"})), filepath.Join(dir, "mine"), RestoreOptions{}); !errors.Is(err, fumehood.ErrNotDirectory) {
		t.Errorf("%v", err)
	}
	if _, err := Restore(t.Context(), bytes.NewReader(stream(t, tar.Header{Name: "a"})), filepath.Join(dir, "no/such"), RestoreOptions{}); !errors.Is(err, fumehood.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestRestore_diskError(t *testing.T) {
	base := t.TempDir()
	for _, size := range []int64{10, bufferSize + 1} {
		heads := []tar.Header{{Name: "d/a", Size: 10}, {Name: "d/" + strings.Repeat("x", 300), Size: size}}
		for i := range 100 { // more than are in progress at once
			heads = append(heads, tar.Header{Name: "e/" + strings.Repeat("y", 10+i), Size: 10})
		}
		_, err := Restore(t.Context(), bytes.NewReader(stream(t, heads...)), filepath.Join(base, "new"), RestoreOptions{})
		if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "too long") {
			t.Errorf("%v", err)
		}
		only(t, base)
	}
}

func TestRestore_impliedFolders(t *testing.T) {
	data := stream(t, tar.Header{Name: "a/b/c"}, dirHead("a/b"), dirHead("a/b/d"))
	dir := filepath.Join(t.TempDir(), "new")
	m, err := Restore(t.Context(), bytes.NewReader(data), dir, RestoreOptions{})
	if err != nil || paths(m) != "a a/b a/b/c a/b/d" {
		t.Fatalf("%+v, %v", m, err)
	}
	if _, again := snapshot(t, dir, CreateOptions{}); again.Hash() != m.Hash() {
		t.Error("the tree on disk differs")
	}
}

func TestRestore_limits(t *testing.T) {
	pack := func(data []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	many := make([]tar.Header, 20)
	for i := range many {
		many[i] = tar.Header{Name: string(rune('a' + i))}
	}
	long := tar.Header{Name: strings.Repeat("x/", 3000) + "x"}
	sparse := tar.Header{Name: "s", PAXRecords: map[string]string{"comment": strings.Repeat("x", 900_000)}}
	for name, c := range map[string]struct {
		data  []byte
		says  string
		limit Limits
	}{
		"bytes of a file":        {pack(stream(t, tar.Header{Name: "a", Size: 5 << 20})), "more than 1048576 bytes", Limits{Bytes: 1 << 20}},
		"bytes of two":           {pack(stream(t, tar.Header{Name: "a", Size: 600 << 10}, tar.Header{Name: "b", Size: 600 << 10})), "more than 1048576 bytes", Limits{Bytes: 1 << 20}},
		"entries":                {pack(stream(t, many...)), "more than 10 entries", Limits{Entries: 10}},
		"bytes of headers":       {pack(stream(t, sparse, sparse)), "more than 1048576 bytes", Limits{Bytes: 1 << 20}},
		"the length of names":    {pack(stream(t, long)), "longer than 4096 bytes", Limits{}},
		"bytes after the end":    {pack(append(stream(t), make([]byte, 2<<20)...)), "more than 1048576 bytes", Limits{Bytes: 1 << 20}},
		"bytes not compressed":   {stream(t, tar.Header{Name: "a", Size: 2 << 20}), "more than 1048576 bytes", Limits{Bytes: 1 << 20}},
		"bytes that a head says": {stream(t, tar.Header{Name: "a", Size: 2 << 20})[:512], "more than 1048576 bytes", Limits{Bytes: 1 << 20}},
	} {
		base := t.TempDir()
		_, err := Restore(t.Context(), bytes.NewReader(c.data), filepath.Join(base, "new"), RestoreOptions{Limits: c.limit})
		if !errors.Is(err, fumehood.ErrLimit) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		only(t, base)
	}
	none := Limits{Bytes: fumehood.NoLimit, Entries: fumehood.NoLimit}
	if _, err := Read(t.Context(), bytes.NewReader(pack(stream(t, many...))), none); err != nil {
		t.Error(err)
	}
}

func TestRead_memoryLimit(t *testing.T) {
	xz, err := os.ReadFile("testdata/dictionary-of-4GiB.tar.xz")
	if err != nil {
		t.Fatal(err)
	}
	var zst bytes.Buffer
	w, err := zstd.NewWriter(&zst, zstd.WithWindowSize(256<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(stream(t, tar.Header{Name: "a", Size: 20 << 20})); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for says, data := range map[string][]byte{"67108864 bytes of memory": xz, "134217728 bytes of memory": zst.Bytes()} {
		if _, err := Read(t.Context(), bytes.NewReader(data), Limits{}); !errors.Is(err, fumehood.ErrLimit) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}

func TestRead_damaged(t *testing.T) {
	dir := tree(t, map[string]string{"a": strings.Repeat("some text", 5000), "b": strings.Repeat("more text", 5000)})
	for _, c := range []Compression{None, Gzip, XZ, Zstd} {
		data, _ := snapshot(t, dir, CreateOptions{Compression: c})
		if c == None {
			data = bytes.TrimRight(data, "\x00")
		}
		for _, cut := range []int{1, 5, 60, len(data) / 2, len(data) - 20, len(data) - 1} {
			_, err := Read(t.Context(), bytes.NewReader(data[:cut]), Limits{})
			if cut < len(data) && !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("%s cut at %d of %d: %v", c, cut, len(data), err)
			}
		}
	}
	plain, _ := snapshot(t, dir, CreateOptions{Compression: None})
	entry := 512 + (45000+511)/512*512
	for name, data := range map[string][]byte{"nothing": nil, "text": []byte("hello\n"), "an end between entries": plain[:entry], "zeros": make([]byte, 500)} {
		if _, err := Read(t.Context(), bytes.NewReader(data), Limits{}); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	packed, _ := snapshot(t, dir, CreateOptions{})
	packed[len(packed)-6] ^= 1 // in the checksum
	if _, err := Read(t.Context(), bytes.NewReader(packed), Limits{}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("a wrong checksum: %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

func TestRead_streamFails(t *testing.T) {
	for _, c := range []Compression{None, Gzip, XZ, Zstd} {
		data, _ := snapshot(t, tree(t, map[string]string{"a": strings.Repeat("x", 100_000)}), CreateOptions{Compression: c})
		_, err := Read(t.Context(), io.MultiReader(bytes.NewReader(data[:len(data)/2]), failing{}), Limits{})
		if !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "the disk is gone") {
			t.Errorf("%s: %v", c, err)
		}
	}
}

func FuzzRestore(f *testing.F) {
	plain := stream(f, dirHead("d"), tar.Header{Name: "d/a", Size: 9}, linkHead("d/l", "../d"), tar.Header{Name: "x/y"})
	f.Add(plain)
	f.Add(stream(f, linkHead("l", ".."), tar.Header{Name: "l/evil"}))
	f.Add(stream(f, linkHead("d/x", "."), linkHead("l", "d/x/../..")))
	f.Add(stream(f, tar.Header{Name: "a/../../evil"}, tar.Header{Name: "h", Linkname: "a", Typeflag: tar.TypeLink}))
	for _, c := range []Compression{Gzip, XZ, Zstd} {
		data, _ := snapshot(f, tree(f, map[string]string{"a/b": "text", "l": "->a/b", "empty/": ""}), CreateOptions{Compression: c})
		f.Add(data)
	}
	if bz, err := os.ReadFile("testdata/hello.tar.bz2"); err == nil {
		f.Add(bz)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		base := t.TempDir()
		dest := filepath.Join(base, "dest")
		if err := os.Mkdir(dest, 0o755); err != nil {
			t.Fatal(err)
		}
		m, err := Restore(t.Context(), bytes.NewReader(data), dest, RestoreOptions{Limits: Limits{Bytes: 1 << 20, Entries: 100}})
		only(t, base, "dest")
		if err != nil {
			if fumehood.ClassOf(err) == nil {
				t.Errorf("error without a class: %v", err)
			}
			only(t, dest)
			return
		}
		inside(t, dest)
		_ = filepath.WalkDir(dest, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(p, 0o755) // so that t.TempDir can remove it
			}
			return nil
		})
		if index, err := Read(t.Context(), bytes.NewReader(data), Limits{}); err != nil || index.Hash() != m.Hash() {
			t.Errorf("Restore and Read return different trees: %v", err)
		}
	})
}

// inside fails if a link in dir leads out of it.
func inside(t *testing.T, dir string) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = filepath.WalkDir(real, func(p string, d fs.DirEntry, _ error) error {
		if d != nil && d.Type()&fs.ModeSymlink != 0 {
			if to, err := filepath.EvalSymlinks(p); err == nil && to != real && !strings.HasPrefix(to, real+"/") {
				t.Errorf("%s leads to %s", p, to)
			}
		}
		return nil
	})
}
