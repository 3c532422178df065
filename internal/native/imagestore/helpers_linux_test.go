package imagestore

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
)

// entry is an entry of a layer, with its content.
type entry struct {
	tar.Header
	content string
}

var mtime = time.Unix(1_500_000_000, 123_000_000)

func file(name, content string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: mtime}, content}
}

func dir(name string) entry {
	return entry{Header: tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: mtime}}
}

func link(name, target string) entry {
	return entry{Header: tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink, Mode: 0o777, ModTime: mtime}}
}

func hardLink(name, target string) entry {
	return entry{Header: tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeLink, Mode: 0o644, ModTime: mtime}}
}

func device(name string, kind byte, major, minor int64) entry {
	return entry{Header: tar.Header{Name: name, Typeflag: kind, Mode: 0o666, Devmajor: major, Devminor: minor, ModTime: mtime}}
}

// with changes an entry.
func (e entry) with(change func(*tar.Header)) entry {
	e.PAXRecords = maps.Clone(e.PAXRecords)
	change(&e.Header)
	return e
}

func (e entry) attr(name, value string) entry {
	return e.with(func(h *tar.Header) {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[paxAttr+name] = value
	})
}

// layerOf returns the tar stream of a layer.
func layerOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// built is an image of a test.
type built struct {
	config  []byte
	layers  [][]byte // as an archive has them, maybe compressed
	streams [][]byte // plain
}

func (b built) id() string { return digest(b.config).String() }

// build makes an image for this machine.
func build(t testing.TB, layers ...[]byte) built {
	t.Helper()
	config := v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Env: []string{"A=B"}, WorkingDir: "/w", User: "7:8", StopSignal: "SIGINT"},
	}
	for _, l := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest(l))
	}
	content, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return built{content, layers, layers}
}

// save writes an image as `docker save` does, and returns its reference.
func (b built) save(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	b.saveTo(t, file)
	return "docker-archive:" + file
}

func (b built) saveTo(t testing.TB, name string) {
	t.Helper()
	config := digest(b.config).Hex + ".json"
	entries := []entry{file(config, string(b.config))}
	var names []string
	for n, l := range b.layers {
		names = append(names, fmt.Sprintf("%d/layer.tar", n))
		entries = append(entries, file(names[n], string(l)))
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": config, "RepoTags": []string{"test:latest"}, "Layers": names}})
	if err != nil {
		t.Fatal(err)
	}
	entries = append(entries, file("manifest.json", string(manifest)))
	if err := os.WriteFile(name, layerOf(t, entries...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// newStore opens an empty store.
func newStore(t testing.TB) *Store {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("unpacking needs root")
	}
	s, err := Open(filepath.Join(t.TempDir(), "store"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// get returns an image until the end of the test.
func get(t testing.TB, s *Store, ref string) *Image {
	t.Helper()
	img, err := s.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = img.Close() })
	return img
}

// fails checks that Get fails with a class, and leaves nothing unfinished behind.
func fails(t testing.TB, s *Store, ref string, class error) {
	t.Helper()
	img, err := s.Get(t.Context(), ref)
	if err == nil {
		img.Close()
		t.Fatalf("got %v", img.Layers)
	}
	if !errors.Is(err, class) {
		t.Errorf("error %v of class %v, want %v", err, fumehood.ClassOf(err), class)
	}
	left(t, s, unfinished, refsDir)
}

// left checks that folders of a store are empty.
func left(t testing.TB, s *Store, folders ...string) {
	t.Helper()
	for _, folder := range folders {
		if entries, err := os.ReadDir(s.path(folder, "")); err != nil || len(entries) > 0 {
			t.Errorf("left in %s: %v, %v", folder, entries, err)
		}
	}
}

// merged mounts the layers of an image as a sandbox does.
func merged(t testing.TB, img *Image) string {
	t.Helper()
	base := t.TempDir()
	for _, d := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lower := slices.Clone(img.Layers)
	slices.Reverse(lower)
	at := filepath.Join(base, "merged")
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", strings.Join(lower, ":"), base, base)
	if err := unix.Mount("overlay", at, "overlay", 0, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	return at
}

// treeOf describes all files below a folder by their paths.
func treeOf(t testing.TB, root string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == root {
			return err
		}
		name := strings.TrimPrefix(file, root+"/")
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		h := tar.Header{Name: name, Uid: int(st.Uid), Gid: int(st.Gid), ModTime: info.ModTime(), Mode: int64(st.Mode & 0o7777)}
		var sum string
		switch mode := info.Mode(); {
		case inodes[st.Ino] != "" && !mode.IsDir():
			h.Typeflag, h.Linkname = tar.TypeLink, inodes[st.Ino]
		case mode.IsDir():
			h.Typeflag = tar.TypeDir
		case mode&fs.ModeSymlink != 0:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = os.Readlink(file); err != nil {
				return err
			}
		case mode&fs.ModeNamedPipe != 0:
			h.Typeflag = tar.TypeFifo
		case mode&fs.ModeDevice != 0:
			h.Typeflag = tar.TypeChar
		default:
			h.Typeflag, h.Size = tar.TypeReg, st.Size
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			sum = hash(content)
		}
		if h.Typeflag != tar.TypeDir && st.Nlink > 1 && inodes[st.Ino] == "" {
			inodes[st.Ino] = name
		}
		buf := make([]byte, 100)
		if n, err := unix.Lgetxattr(file, "security.capability", buf); err == nil {
			h.PAXRecords = map[string]string{paxAttr + "security.capability": string(buf[:n])}
		}
		tree[name] = describe(&h, sum)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8])
}

// describe returns what two equal files have in common. Hard links are compared by their targets.
func describe(h *tar.Header, sum string) string {
	if h.Typeflag == tar.TypeLink {
		return "hard link to " + path.Clean(h.Linkname)
	}
	if h.Typeflag == tar.TypeSymlink {
		h.Mode = 0o777
	}
	return fmt.Sprintf("%c %o %d:%d %d %d %q %s %x", h.Typeflag, h.Mode&0o7777, h.Uid, h.Gid, h.Size,
		h.ModTime.Unix(), h.Linkname, sum, h.PAXRecords[paxAttr+"security.capability"])
}

// tarTree describes the files of a tar stream as treeOf does.
func tarTree(t testing.TB, r io.Reader) map[string]string {
	t.Helper()
	tree := map[string]string{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return tree
		}
		if err != nil {
			t.Fatal(err)
		}
		sum := ""
		if h.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			sum = hash(content)
		}
		tree[path.Clean(h.Name)] = describe(h, sum)
	}
}

// sameTrees reports differences between two trees.
func sameTrees(t testing.TB, got, want map[string]string) {
	t.Helper()
	differences := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			if differences++; differences < 20 {
				t.Errorf("%s: got %q, want %q", name, got[name], want[name])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			if differences++; differences < 20 {
				t.Errorf("%s: got %q, want nothing", name, got[name])
			}
		}
	}
}
