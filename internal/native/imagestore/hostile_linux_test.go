package imagestore

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
)

// guarded is a store beside files that a layer may aim at.
type guarded struct {
	*Store
	outside string
	before  map[string]string
}

func newGuarded(t testing.TB) *guarded {
	t.Helper()
	s := newStore(t)
	g := &guarded{Store: s, outside: filepath.Join(filepath.Dir(s.dir), "outside")}
	if err := os.Mkdir(g.outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.before = treeOf(t, g.outside)
	return g
}

// check checks that nothing outside of the store has changed, not even an attribute.
func (g *guarded) check(t testing.TB) {
	t.Helper()
	sameTrees(t, treeOf(t, g.outside), g.before)
	for _, file := range []string{g.outside, filepath.Join(g.outside, "secret")} {
		if _, err := unix.Lgetxattr(file, opaqueAttrs[0], nil); !errors.Is(err, unix.ENODATA) {
			t.Errorf("attribute on %s: %v", file, err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(g.outside))
	if err != nil || len(entries) != 2 {
		t.Errorf("beside the store: %v, %v", entries, err)
	}
}

func TestGet_hostileLayers(t *testing.T) {
	regular := func(t *testing.T, file, content string) {
		t.Helper()
		info, err := os.Lstat(file)
		if err != nil || !info.Mode().IsRegular() {
			t.Fatal(info, err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != content {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	missing := func(t *testing.T, file string) {
		t.Helper()
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Error(file, err)
		}
	}
	long := strings.Repeat("x", 5000)
	for _, test := range []struct {
		name    string
		entries func(outside string) []entry
		class   error // nil: the layer is unpacked
		check   func(t *testing.T, dir string)
	}{
		{"absolute name", func(out string) []entry { return []entry{file(out+"/new", "x")} }, nil, nil},
		{"dots", func(string) []entry { return []entry{file("../outside/new", "x")} }, fumehood.ErrConfig, nil},
		{"dots within", func(string) []entry { return []entry{file("a/../../../outside/new", "x")} }, fumehood.ErrConfig, nil},
		{"dots after slash", func(string) []entry { return []entry{file("/../new", "x")} }, nil, func(t *testing.T, dir string) {
			regular(t, dir+"/new", "x")
		}},
		{"absolute link", func(out string) []entry { return []entry{link("l", out), file("l/secret", "x"), file("l/new", "x")} }, nil, nil},
		{"relative link", func(string) []entry {
			return []entry{link("l", "../../../outside"), file("l/secret", "x"), dir("l")}
		}, nil, nil},
		{"link to link", func(out string) []entry {
			return []entry{link("a", "b"), link("b", "/../.."+out), file("a/new", "x")}
		}, nil, nil},
		{"link loop", func(string) []entry { return []entry{link("a", "b"), link("b", "a"), file("a/x", "x")} }, fumehood.ErrConfig, nil},
		{"link at file", func(out string) []entry { return []entry{link("l", out+"/secret"), file("l", "x")} }, nil, func(t *testing.T, dir string) {
			regular(t, dir+"/l", "x")
		}},
		{"mode through link", func(out string) []entry {
			return []entry{link("l", out+"/secret").with(func(h *tar.Header) { h.Mode, h.Uid = 0o6777, 5 }).attr("user.x", "y")}
		}, nil, nil},
		{"hard link outside", func(out string) []entry { return []entry{hardLink("h", out+"/secret")} }, fumehood.ErrConfig, nil},
		{"hard link dots", func(string) []entry { return []entry{hardLink("h", "../../../outside/secret")} }, fumehood.ErrConfig, nil},
		{"hard link through link", func(out string) []entry {
			return []entry{link("l", out), hardLink("h", "l/secret")}
		}, fumehood.ErrConfig, nil},
		{"hard link to link", func(out string) []entry {
			return []entry{link("l", out+"/secret"), hardLink("h", "l").with(func(h *tar.Header) { h.Mode = 0o6777 }), file("h", "x")}
		}, nil, func(t *testing.T, dir string) { regular(t, dir+"/h", "x") }},
		{"hard link to folder", func(string) []entry { return []entry{dir("d"), hardLink("h", "d")} }, fumehood.ErrConfig, nil},
		{"hard link to itself", func(string) []entry { return []entry{hardLink("h", "h")} }, fumehood.ErrConfig, nil},
		{"whiteout of nothing", func(string) []entry { return []entry{file(".wh.", "")} }, fumehood.ErrConfig, nil},
		{"whiteout of dot", func(string) []entry { return []entry{file("d/.wh..", "")} }, fumehood.ErrConfig, nil},
		{"whiteout of dots", func(string) []entry { return []entry{file("d/.wh...", "")} }, fumehood.ErrConfig, nil},
		{"whiteout through link", func(out string) []entry { return []entry{link("l", out), file("l/.wh.secret", "")} }, nil, nil},
		{"opaque marker through link", func(out string) []entry { return []entry{link("l", out), file("l/"+opaqueMarker, "")} }, nil, nil},
		{"opaque marker in file", func(string) []entry { return []entry{file("f", ""), file("f/"+opaqueMarker, "")} }, fumehood.ErrConfig, nil},
		{"marker as link", func(out string) []entry { return []entry{dir("d"), link("d/"+opaqueMarker, out)} }, nil, func(t *testing.T, dir string) {
			missing(t, dir+"/d/"+opaqueMarker)
		}},
		{"metadata of AUFS", func(string) []entry {
			return []entry{dir(".wh..wh.plnk"), file(".wh..wh.plnk/1", ""), file("d/.wh..wh.aufs", "")}
		}, nil, func(t *testing.T, dir string) {
			missing(t, dir+"/.wh..wh.plnk")
			missing(t, dir+"/d/.wh..wh.aufs")
		}},
		{"devices", func(string) []entry {
			return []entry{device("null", tar.TypeChar, 1, 3), device("sda", tar.TypeBlock, 8, 0), device("f", tar.TypeChar, 0, 0), hardLink("null2", "./null"), file("after", "x")}
		}, nil, func(t *testing.T, dir string) {
			for _, name := range []string{"null", "sda", "f", "null2"} {
				missing(t, filepath.Join(dir, name))
			}
			regular(t, dir+"/after", "x")
		}},
		{"setuid", func(string) []entry {
			return []entry{file("su", "x").with(func(h *tar.Header) { h.Mode, h.Uid, h.Gid = 0o6755, 12, 34 })}
		}, nil, func(t *testing.T, dir string) {
			var st unix.Stat_t
			if err := unix.Lstat(dir+"/su", &st); err != nil || st.Mode&0o7777 != 0o6755 || st.Uid != 12 || st.Gid != 34 {
				t.Errorf("%o %d:%d %v", st.Mode, st.Uid, st.Gid, err)
			}
		}},
		{"owner -1", func(string) []entry {
			return []entry{file("f", "x").with(func(h *tar.Header) { h.Uid, h.Format = -1, tar.FormatGNU })}
		}, fumehood.ErrConfig, nil},
		{"file then folder", func(string) []entry { return []entry{file("x", "1"), dir("x"), file("x/y", "2")} }, nil, func(t *testing.T, dir string) {
			regular(t, dir+"/x/y", "2")
		}},
		{"folder then file", func(string) []entry { return []entry{dir("x"), file("x/y", "2"), file("x", "1")} }, nil, func(t *testing.T, dir string) {
			regular(t, dir+"/x", "1")
		}},
		{"folder then link", func(out string) []entry { return []entry{dir("x"), link("x", out), file("x/new", "1")} }, nil, nil},
		{"below a file", func(string) []entry { return []entry{file("x", "1"), file("x/y", "2")} }, fumehood.ErrConfig, nil},
		{"long name", func(string) []entry { return []entry{file(long, "x")} }, fumehood.ErrConfig, nil},
		{"long path", func(string) []entry { return []entry{file(strings.Repeat("d/", 2500)+"f", "x")} }, fumehood.ErrConfig, nil},
		{"long link", func(string) []entry { return []entry{link("l", long)} }, fumehood.ErrConfig, nil},
		{"attributes of overlayfs", func(string) []entry {
			return []entry{dir("d").attr("trusted.overlay.opaque", "y").attr("trusted.overlay.redirect", "/etc").attr("user.overlay.opaque", "y").attr("user.kept", "v")}
		}, nil, func(t *testing.T, dir string) {
			list := make([]byte, 1000)
			n, err := unix.Llistxattr(dir+"/d", list)
			if err != nil || string(list[:n]) != "user.kept\x00" {
				t.Errorf("%q, %v", list[:n], err)
			}
		}},
		{"attributes of security modules", func(string) []entry {
			return []entry{file("f", "").attr("security.ima", "x").attr("system.posix_acl_access", "x")}
		}, nil, nil},
		{"large attribute", func(string) []entry { return []entry{file("f", "").attr("user.x", strings.Repeat("x", 60<<10))} }, fumehood.ErrLimit, nil},
		{"many attributes", func(string) []entry {
			e := file("f", "")
			for n := range 200 {
				e = e.attr(fmt.Sprintf("user.%d", n), "")
			}
			return []entry{e}
		}, fumehood.ErrLimit, nil},
		{"most attributes", func(string) []entry { // that are accepted fit
			e := file("f", "")
			for n := range 100 {
				e = e.attr(fmt.Sprintf("user.%02d", n), "123")
			}
			return []entry{e}
		}, nil, nil},
		{"global header", func(string) []entry {
			return []entry{dir("pax_global_header"), file("pax_global_header/f", "x"), {Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}}}
		}, nil, func(t *testing.T, dir string) { regular(t, dir+"/pax_global_header/f", "x") }},
		{"top folder", func(string) []entry {
			return []entry{dir(".").with(func(h *tar.Header) { h.Mode, h.Uid, h.Gid = 0o1751, 3, 4 }), link("/", "x"), file("f", "x")}
		}, nil, func(t *testing.T, dir string) {
			var st unix.Stat_t
			if err := unix.Lstat(dir, &st); err != nil || st.Mode != unix.S_IFDIR|0o1751 || st.Uid != 3 || st.Gid != 4 || st.Mtim.Sec != mtime.Unix() {
				t.Errorf("%o %d:%d %v %v", st.Mode, st.Uid, st.Gid, st.Mtim, err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newGuarded(t)
			ref := build(t, layerOf(t, test.entries(s.outside)...)).save(t)
			if test.class != nil {
				fails(t, s.Store, ref, test.class)
				left(t, s.Store, layersDir)
			} else {
				img := get(t, s.Store, ref)
				if test.check != nil {
					test.check(t, img.Layers[0])
				}
			}
			s.check(t)
		})
	}
}

func TestGet_limits(t *testing.T) {
	small := limits{bytes: 1 << 20, entries: 100, names: 10_000}
	zeros := layerOf(t, file("f", strings.Repeat("\x00", 3<<20)))
	many := func(n int, name func(n int) string) []byte {
		var entries []entry
		for i := range n {
			entries = append(entries, file(name(i), ""))
		}
		return layerOf(t, entries...)
	}
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	declared := layerOf(t, file("f", "x"))
	copy(declared[124:136], "77777777777\x00") // 8 GiB
	checksum(declared[:512])
	for _, test := range []struct {
		name         string
		stored, tars [][]byte
	}{
		{"plain", [][]byte{zeros}, [][]byte{zeros}},
		{"gzip bomb", [][]byte{gzipped(t, zeros)}, [][]byte{zeros}},
		{"zstd bomb", [][]byte{w.EncodeAll(zeros, nil)}, [][]byte{zeros}},
		{"declared size", [][]byte{declared}, [][]byte{declared}},
		{"several layers", nil, [][]byte{layerOf(t, file("f", strings.Repeat("1", 600<<10))), layerOf(t, file("f", strings.Repeat("2", 600<<10)))}},
		{"sparse", nil, [][]byte{sparse(t, 1<<40)}},
		{"entries", nil, [][]byte{many(101, func(n int) string { return fmt.Sprint(n) })}},
		{"names", nil, [][]byte{many(99, func(n int) string { return fmt.Sprint(n) + strings.Repeat("x", 200) })}},
		{"padding", nil, [][]byte{append(layerOf(t), make([]byte, 2<<20)...)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newGuarded(t)
			s.limits = small
			b := build(t, test.tars...)
			if test.stored != nil {
				b.layers = test.stored
			}
			_, err := s.Get(t.Context(), b.save(t))
			if !errors.Is(err, fumehood.ErrLimit) {
				t.Error(err)
			}
			left(t, s.Store, unfinished)
			s.check(t)
		})
	}
	t.Run("below", func(t *testing.T) {
		s := newStore(t)
		s.limits = small
		get(t, s, build(t, many(100, func(n int) string { return fmt.Sprint(n) })).save(t))
	})
}

// sparse returns a layer with a sparse file, in the format 1.0 of GNU.
func sparse(t *testing.T, size int64) []byte {
	t.Helper()
	content := "1\n0\n1\n" // one fragment: a byte at 0
	content += strings.Repeat("\x00", 512-len(content)) + "x"
	l := layerOf(t, file("GNUSparseFile.0/f", content).with(func(h *tar.Header) {
		h.Format = tar.FormatPAX
		h.PAXRecords = map[string]string{"GNU.aparse.major": "1", "GNU.aparse.minor": "0", "GNU.aparse.name": "f", "GNU.aparse.realsize": fmt.Sprintf("%013d", size)}
	}))
	return bytes.ReplaceAll(l, []byte("GNU.aparse."), []byte("GNU.sparse.")) // the writer rejects such records
}

// checksum writes the checksum of a tar header.
func checksum(h []byte) {
	copy(h[148:156], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

func TestGet_badImages(t *testing.T) {
	plain := layerOf(t, dir("d"), file("d/f", strings.Repeat("content", 1000)))
	change := func(f func(*built)) built {
		b := build(t, plain)
		f(&b)
		return b
	}
	config := func(f func(*v1.ConfigFile)) built {
		return change(func(b *built) {
			var c v1.ConfigFile
			if err := json.Unmarshal(b.config, &c); err != nil {
				t.Fatal(err)
			}
			f(&c)
			var err error
			if b.config, err = json.Marshal(c); err != nil {
				t.Fatal(err)
			}
		})
	}
	corrupt := gzipped(t, plain)
	corrupt[len(corrupt)-3] ^= 1
	for _, test := range []struct {
		name  string
		image built
		class error
		text  string
	}{
		{"wrong digest", change(func(b *built) { b.layers = [][]byte{layerOf(t, file("other", "x"))} }), fumehood.ErrConfig, "has the digest"},
		{"data after the end", change(func(b *built) { b.layers = [][]byte{append(plain[:len(plain):len(plain)], 1)} }), fumehood.ErrConfig, "has the digest"},
		{"truncated", change(func(b *built) { b.layers = [][]byte{plain[:3000]} }), fumehood.ErrConfig, "unexpected EOF"},
		{"truncated gzip", change(func(b *built) { c := gzipped(t, plain); b.layers = [][]byte{c[:len(c)/2]} }), fumehood.ErrConfig, "unexpected EOF"},
		{"corrupt gzip", change(func(b *built) { b.layers = [][]byte{corrupt} }), fumehood.ErrConfig, "checksum"},
		{"not a tar", change(func(b *built) { b.layers = [][]byte{[]byte(strings.Repeat("no", 1000))} }), fumehood.ErrConfig, ""},
		{"fewer layers", change(func(b *built) { b.layers = nil }), fumehood.ErrConfig, "names 1 layers"},
		{"config not JSON", change(func(b *built) { b.config = []byte("{") }), fumehood.ErrConfig, "config"},
		{"huge config", change(func(b *built) { b.config = []byte(`{"author":"` + strings.Repeat("x", maxConfig) + `"}`) }), fumehood.ErrLimit, ""},
		{"many layers", change(func(b *built) { b.layers = make([][]byte, 10_000) }), fumehood.ErrLimit, "10000 layers, the limit is 127"},
		{"many digests", config(func(c *v1.ConfigFile) { c.RootFS.DiffIDs = slices.Repeat(c.RootFS.DiffIDs, 128) }), fumehood.ErrLimit, "128 layers"},
		{"many volumes", config(func(c *v1.ConfigFile) {
			c.Config.Volumes = map[string]struct{}{}
			for n := range 128 {
				c.Config.Volumes[fmt.Sprint("/v", n)] = struct{}{}
			}
		}), fumehood.ErrLimit, "128 volumes"},
		{"architecture", config(func(c *v1.ConfigFile) { c.Architecture = "riscv64" }), fumehood.ErrUnsupported, "image is for linux/riscv64, this machine needs linux/" + runtime.GOARCH},
		{"system", config(func(c *v1.ConfigFile) { c.OS = "windows" }), fumehood.ErrUnsupported, "windows/"},
		{"path as digest", change(func(b *built) {
			b.config = bytes.ReplaceAll(b.config, []byte(digest(plain).Hex), []byte("../../../../outside"))
		}), fumehood.ErrConfig, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newGuarded(t)
			ref := test.image.save(t)
			fails(t, s.Store, ref, test.class)
			left(t, s.Store, layersDir)
			_, err := s.Get(t.Context(), ref)
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("error %v, want %q", err, test.text)
			}
			s.check(t)
		})
	}
}

func TestGet_diskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts")
	}
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(filepath.Join(at, "store"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ref := build(t, layerOf(t, file("f", strings.Repeat("x", 2<<20)))).save(t)
	fails(t, s, ref, fumehood.ErrInfrastructure)
	_, err = s.Get(t.Context(), ref)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the disk of the image store is full") {
		t.Error(err)
	}
}

// Whatever a layer has, nothing outside of its folder changes.
func FuzzApply(f *testing.F) {
	for _, entries := range [][]entry{
		{dir("d"), file("d/f", "x"), link("l", "/outside"), file("l/secret", "x"), hardLink("h", "d/f")},
		{link("l", "../outside"), file("l/.wh.secret", ""), file("l/"+opaqueMarker, ""), file("../f", "x")},
		{file(".wh.a", ""), dir("a"), file("a/b", ""), device("c", tar.TypeChar, 0, 0), hardLink("d", "c")},
		{dir(".").attr("user.x", "y"), file("/a/../b", "x").attr("security.capability", "x"), link("b", "b")},
	} {
		f.Add(layerOf(f, entries...))
	}
	f.Fuzz(func(t *testing.T, layer []byte) {
		s := newGuarded(t)
		s.limits = limits{bytes: 1 << 20, entries: 1000, names: 100_000}
		target := s.path(unfinished, "layer")
		if err := os.Mkdir(target, 0o755); err != nil {
			t.Fatal(err)
		}
		_, _ = s.apply(t.Context(), target, bytes.NewReader(layer), newBudget(s.limits)) // any error is fine
		s.check(t)
		left(t, s.Store, layersDir, imagesDir, refsDir)
		if entries, err := os.ReadDir(s.path(unfinished, "")); err != nil || len(entries) != 1 {
			t.Error(entries, err)
		}
	})
}
