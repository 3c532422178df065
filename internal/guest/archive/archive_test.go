package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPack_roundTrip(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	for name, mode := range map[string]fs.FileMode{"a.txt": 0o644, "sub/run": 0o755, "sub/na me\n%": 0o600} {
		file := filepath.Join(src, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(name), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("sub/run", filepath.Join(src, "link")), os.Chmod(filepath.Join(src, "sub"), 0o555)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(src, "sub"), 0o755) })
	var b bytes.Buffer
	if err := Pack(&b, src, "src"); err != nil {
		t.Fatal(err)
	}
	dest := t.TempDir()
	if err := Unpack(&b, dest, "copy", Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dest, "copy/sub"), 0o755) })
	for name, mode := range map[string]fs.FileMode{"a.txt": 0o644, "sub": fs.ModeDir | 0o555, "sub/run": 0o755, "sub/na me\n%": 0o600, "link": fs.ModeSymlink | 0o777} {
		info, err := os.Lstat(filepath.Join(dest, "copy", name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%q: %v, %v; want mode %v", name, info, err, mode)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dest, "copy/link")); err != nil || string(got) != "sub/run" {
		t.Errorf("through the link: %q, %v", got, err)
	}
}

type entry struct {
	name, link, body string
	kind             byte
}

func stream(t testing.TB, entries ...entry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		err := tw.WriteHeader(&tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o4755, Size: int64(len(e.body))})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestUnpack_hostile(t *testing.T) {
	for name, entries := range map[string][]entry{
		"a name that climbs":            {{name: "x/../../evil", body: "x"}},
		"a name beside the tree":        {{name: "x/", kind: tar.TypeDir}, {name: "x/../evil", body: "x"}},
		"a later name that climbs":      {{name: "x/a", body: "x"}, {name: "../evil", body: "x"}},
		"an absolute name":              {{name: "/evil", body: "x"}},
		"a second tree":                 {{name: "x/a", body: "x"}, {name: "evil/a", body: "x"}},
		"a link that climbs":            {{name: "x/l", link: "../../evil", kind: tar.TypeSymlink}},
		"a link to beside the tree":     {{name: "x/l", link: "../sibling", kind: tar.TypeSymlink}},
		"a link that climbs by another": {{name: "x/a0", link: ".", kind: tar.TypeSymlink}, {name: "x/a1", link: "a0/..", kind: tar.TypeSymlink}},
		"a file behind a link":          {{name: "x/d/f", body: "x"}, {name: "x/l", link: "d", kind: tar.TypeSymlink}, {name: "x/l/evil", body: "x"}},
		"a folder behind a link":        {{name: "x/l", link: ".", kind: tar.TypeSymlink}, {name: "x/l/evil/", kind: tar.TypeDir}},
		"a link behind a link":          {{name: "x/l", link: ".", kind: tar.TypeSymlink}, {name: "x/l/evil", link: "a", kind: tar.TypeSymlink}},
		"a link in place of the tree":   {{name: "x", link: ".git", kind: tar.TypeSymlink}},
		"an absolute link":              {{name: "x/l", link: "/etc/passwd", kind: tar.TypeSymlink}},
		"a hard link":                   {{name: "x/l", link: "/etc/passwd", kind: tar.TypeLink}},
		"a device":                      {{name: "x/l", kind: tar.TypeChar}},
		"a pipe":                        {{name: "x/l", kind: tar.TypeFifo}},
		"too many bytes":                {{name: "x/a", body: strings.Repeat("x", 60)}, {name: "x/b", body: strings.Repeat("x", 60)}},
		"too many entries":              {{name: "x/a"}, {name: "x/b"}, {name: "x/c"}, {name: "x/d"}},
		"nothing":                       {},
		"a file where a folder is":      {{name: "x/a/b", body: "x"}, {name: "x/a", body: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dest := filepath.Join(base, "dest")
			if err := os.Mkdir(dest, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := Unpack(stream(t, entries...), dest, "x", Options{Bytes: 100, Entries: 3}); err == nil {
				t.Error("the archive was accepted")
			}
			only(t, base, "dest")
		})
	}
}

func TestUnpack_fileOverFolder(t *testing.T) {
	err := Unpack(stream(t, entry{name: "x/a/b", body: "x"}, entry{name: "x/a", body: "x"}), t.TempDir(), "x", Options{})
	if !errors.Is(err, syscall.EISDIR) {
		t.Error(err)
	}
}

// Links that an earlier copy has put into a tree do not lead a later copy out of it.
func TestUnpack_existingLink(t *testing.T) {
	base := t.TempDir()
	dest, outside := filepath.Join(base, "dest"), filepath.Join(base, "outside")
	if err := errors.Join(os.Mkdir(dest, 0o755), os.Mkdir(outside, 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"x": outside, "y/sub": outside, "z/sub": "../../outside"} {
		name = filepath.Join(dest, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(target, name)); err != nil {
			t.Fatal(err)
		}
	}
	for tree, entries := range map[string][]entry{
		"x": {{name: "x/evil", body: "x"}}, "y": {{name: "y/sub/evil", body: "x"}}, "z": {{name: "z/sub/deep/", kind: tar.TypeDir}},
	} {
		if err := Unpack(stream(t, entries...), dest, tree, Options{}); err == nil {
			t.Errorf("%s was accepted", tree)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside there are %v, %v", left, err)
	}
	// A file replaces a link, and nothing is written to the link's target.
	if err := Unpack(stream(t, entry{name: "y/sub", body: "new"}), dest, "y", Options{}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(dest, "y", "sub")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}

func TestUnpack_linkAsTree(t *testing.T) {
	dest := t.TempDir()
	if err := Unpack(stream(t, entry{name: "x", link: ".git", kind: tar.TypeSymlink}), dest, "x", Options{LinksAsText: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dest, "x")); err != nil || string(got) != ".git" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestUnpack_linksAsText(t *testing.T) {
	dest := t.TempDir()
	link := func(name, target string) entry { return entry{name: name, link: target, kind: tar.TypeSymlink} }
	entries := []entry{{name: "x/d/f", body: "x"}, link("x/in", "d/f"), link("x/d/up", "../in"), link("x/out", "/etc/passwd"), link("x/d/out", "../../y")}
	if err := Unpack(stream(t, entries...), dest, "x", Options{LinksAsText: true}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"in": "d/f", "d/up": "../in"} {
		if got, err := os.Readlink(filepath.Join(dest, "x", name)); err != nil || got != want {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"out": "/etc/passwd", "d/out": "../../y"} {
		name = filepath.Join(dest, "x", name)
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			t.Fatalf("%s: %v, %v", name, info, err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

// only fails the test if dir contains anything but name.
func only(t testing.TB, dir, name string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 || all[0].Name() != name {
		t.Errorf("outside the destination: %v, %v", all, err)
	}
}

func TestUnpack_setID(t *testing.T) {
	dest := t.TempDir()
	if err := Unpack(stream(t, entry{name: "x", body: "x"}), dest, "y", Options{}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dest, "y"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestUnpackInto_hardLink(t *testing.T) {
	dest := t.TempDir()
	link := func(to string) entry { return entry{name: "x/other", link: to, kind: tar.TypeLink} }
	if err := UnpackInto(stream(t, entry{name: "x/file", body: "x"}, link("x/file")), dest); err != nil {
		t.Fatal(err)
	}
	file, err := os.Stat(filepath.Join(dest, "x", "file"))
	other, oerr := os.Stat(filepath.Join(dest, "x", "other"))
	if err != nil || oerr != nil || !os.SameFile(file, other) {
		t.Errorf("%v, %v", err, oerr)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{outside, "../" + filepath.Base(filepath.Dir(outside)) + "/outside", "x/none"} {
		if err := UnpackInto(stream(t, link(to)), t.TempDir()); err == nil {
			t.Errorf("a link to %s was created", to)
		}
	}
}

// Otherwise a sparse file of one TiB in a sandbox would fill the host's disk up to the limit.
func TestUnpack_tooLarge(t *testing.T) {
	dest := t.TempDir()
	err := Unpack(stream(t, entry{name: "x/small", body: "1234"}, entry{name: "x/large", body: strings.Repeat("x", 97)}), dest, "y", Options{Bytes: 100})
	if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "100 bytes") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(filepath.Join(dest, "y", "large")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was created: %v", err)
	}
	if err := Unpack(stream(t, entry{name: "x/a", body: "1234"}, entry{name: "x/b", body: strings.Repeat("x", 96)}), dest, "z", Options{Bytes: 100}); err != nil {
		t.Error(err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(stream(f, entry{name: "x/a", body: "1"}, entry{name: "x/l", link: "a", kind: tar.TypeSymlink}).Bytes())
	f.Add(stream(f, entry{name: "x/l", link: "..", kind: tar.TypeSymlink}, entry{name: "x/l/evil", body: "1"}).Bytes())
	f.Add(stream(f, entry{name: "x", link: ".", kind: tar.TypeSymlink}, entry{name: "x/../../evil", body: "1"}).Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		base := t.TempDir()
		dest := filepath.Join(base, "dest")
		if err := os.Mkdir(dest, 0o755); err != nil {
			t.Fatal(err)
		}
		// Accepted or not: nothing may be outside.
		_ = Unpack(bytes.NewReader(data), dest, "x", Options{Bytes: 1 << 20, Entries: 100})
		only(t, base, "dest")
		_ = filepath.WalkDir(dest, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(p, 0o755) // so that the folder can be removed
			}
			return nil
		})
	})
}

func TestUnpack_deep(t *testing.T) {
	chain := func(depth int) *bytes.Buffer {
		var entries []entry
		for i := 1; i <= depth; i++ {
			entries = append(entries, entry{name: strings.Repeat("d/", i), kind: tar.TypeDir})
		}
		for i := depth; i > 0; i -= 50 { // on the way back
			entries = append(entries, entry{name: strings.Repeat("d/", i) + "file", body: "x"})
		}
		return stream(t, entries...)
	}
	began := time.Now()
	dest := t.TempDir()
	if err := Unpack(chain(400), dest, "copy", Options{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second { // a chain of 400 folders took 26 s
		t.Errorf("400 folders took %v", took)
	}
	if err := os.RemoveAll(filepath.Join(dest, "copy")); err != nil {
		t.Error(err)
	}
	if err := Unpack(chain(maxDepth+1), dest, "copy", Options{}); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "1000 folders") {
		t.Errorf("%d folders: %v", maxDepth+1, err)
	}
}

func TestPack_times(t *testing.T) {
	src := t.TempDir()
	old := time.Unix(981173106, 0)
	file, dir := filepath.Join(src, "tree/dir/file"), filepath.Join(src, "tree/dir")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, nil, 0o600), os.Chtimes(file, old, old), os.Chtimes(dir, old, old)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Pack(&b, filepath.Join(src, "tree"), "tree"); err != nil {
		t.Fatal(err)
	}
	for name, unpack := range map[string]func(dest string) error{
		"Unpack":     func(dest string) error { return Unpack(bytes.NewReader(b.Bytes()), dest, "tree", Options{}) },
		"UnpackInto": func(dest string) error { return UnpackInto(bytes.NewReader(b.Bytes()), dest) },
	} {
		dest := t.TempDir()
		if err := unpack(dest); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"tree/dir", "tree/dir/file"} {
			if info, err := os.Stat(filepath.Join(dest, path)); err != nil || !info.ModTime().Equal(old) {
				t.Errorf("%s: %s: %v, %v", name, path, info, err)
			}
		}
	}
}

// An entry without a time, or with one that no file system has, gets the current time.
func TestUnpack_noTime(t *testing.T) {
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(-5, 0), time.Unix(1<<40, 0)} {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		if err := errors.Join(tw.WriteHeader(&tar.Header{Name: "file", Typeflag: tar.TypeReg, ModTime: at, Format: tar.FormatPAX}), tw.Close()); err != nil {
			t.Fatal(err)
		}
		dest := t.TempDir()
		if err := UnpackInto(&b, dest); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(dest, "file")); err != nil || time.Since(info.ModTime()) > time.Hour || time.Since(info.ModTime()) < -time.Hour {
			t.Errorf("%v became %v, %v", at, info, err)
		}
	}
}

// packed returns the content of a file in an archive of it. edit is called before its content is read.
func packed(t *testing.T, file string, edit func()) (string, error) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	head := &tar.Header{Name: "file", Typeflag: tar.TypeReg}
	if err := packContent(tw, head, &changing{f, edit}); err != nil {
		return "", err
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	tr := tar.NewReader(&b)
	if _, err := tr.Next(); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(tr)
	if err != nil {
		t.Fatal(err)
	}
	return string(content), nil
}

// changing is a file that something changes before it is first read.
type changing struct {
	*os.File
	edit func()
}

func (c *changing) Read(p []byte) (int, error) {
	if c.edit != nil {
		c.edit()
		c.edit = nil
	}
	return c.File.Read(p)
}

func TestPack_sizeChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for name, c := range map[string]struct{ before, after, want int }{
		"small grows":   {10, 2 * readFirst, 2 * readFirst},
		"small shrinks": {10, 3, 3},
		"large grows":   {2 * readFirst, 3 * readFirst, 2 * readFirst},
		"large shrinks": {3 * readFirst, 2 * readFirst, -1},
	} {
		write := func(size int) {
			if err := os.WriteFile(file, bytes.Repeat([]byte("x"), size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(c.before)
		got, err := packed(t, file, func() { write(c.after) })
		switch {
		case c.want < 0 && (err == nil || !strings.Contains(err.Error(), "shorter")):
			t.Errorf("%s: no error: %v", name, err)
		case c.want >= 0 && (err != nil || len(got) != c.want):
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, c.want)
		}
	}
}

// The kernel says that its own files have 0 or 4096 bytes.
func TestPack_kernelFile(t *testing.T) {
	for _, file := range []string{"/proc/version", "/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Log(err)
			continue
		}
		if got, err := packed(t, file, nil); err != nil || len(got) < len(want)/2 || len(got) == 0 {
			t.Errorf("%s: got %d bytes, %v, want about %d", file, len(got), err, len(want))
		}
	}
}
