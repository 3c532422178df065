package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
