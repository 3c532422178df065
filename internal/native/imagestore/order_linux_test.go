package imagestore

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/fumehood/fumehood"
)

// An entry of a layer replaces earlier ones of its name, and whiteouts hide lower files, in any order.
func TestGet_entryOrder(t *testing.T) {
	lower := layerOf(t, dir("d"), file("d/old", "x"), dir("d/sub"), file("d/sub/old", "x"), file("f", "x"))
	null := device("x", tar.TypeChar, 1, 3)
	for name, c := range map[string]struct {
		upper []entry
		want  string // without "f" and what is in d of the lower layer if it begins with "+"
	}{
		"whiteout then file":              {[]entry{file(".wh.d", ""), file("d/new", "")}, "d d/new f"},
		"file then whiteout":              {[]entry{file("d/new", ""), file(".wh.d", "")}, "d d/new f"},
		"whiteout then deep file":         {[]entry{file(".wh.d", ""), file("d/sub/a/new", "")}, "d d/sub d/sub/a d/sub/a/new f"},
		"whiteout then whiteout below":    {[]entry{file(".wh.d", ""), file("d/sub/.wh.old", "")}, "d d/sub f"},
		"whiteout below then whiteout":    {[]entry{file("d/sub/.wh.old", ""), file(".wh.d", "")}, "d d/sub f"},
		"whiteout then file through link": {[]entry{file(".wh.d", ""), link("l", "d"), file("l/new", "")}, "d d/new f l"},
		"whiteout then opaque":            {[]entry{file(".wh.d", ""), file("d/"+opaqueMarker, ""), file("d/new", "")}, "d d/new f"},
		"whiteout twice":                  {[]entry{file(".wh.f", ""), file(".wh.f", "")}, "d d/old d/sub d/sub/old"},
		"whiteout then same file":         {[]entry{file(".wh.f", ""), file("f", "y")}, "d d/old d/sub d/sub/old f"},
		"file then folder":                {[]entry{file("d", ""), dir("d"), file("d/new", "")}, "d d/new f"},
		"folder then dangling link":       {[]entry{dir("r"), dir("r/x"), file("r/x/c", ""), link("r/x", "nowhere")}, "d d/old d/sub d/sub/old f r r/x"},
		"folder below then link":          {[]entry{dir("r"), dir("r/x"), dir("r/x/y"), file("r/x/y/.wh.c", ""), link("r", "/etc")}, "d d/old d/sub d/sub/old f r"},
		"folder then file":                {[]entry{dir("r/x/y"), file("r/x/y/.wh.c", ""), file("r", "")}, "d d/old d/sub d/sub/old f r"},
		"folder then link then folder":    {[]entry{dir("r"), file("r/a", ""), link("r", "nowhere"), dir("r"), file("r/b", "")}, "d d/old d/sub d/sub/old f r r/b"},
		"folder through a replaced link":  {[]entry{dir("r"), link("l", "r"), dir("l/x"), link("l", "nowhere")}, "d d/old d/sub d/sub/old f l r r/x"},
		"folder then hard link":           {[]entry{file("a", ""), dir("r"), file("r/c", ""), hardLink("r", "a")}, "a d d/old d/sub d/sub/old f r"},
		"file then device":                {[]entry{file("x", ""), null}, "d d/old d/sub d/sub/old f"},
		"folder then device":              {[]entry{dir("x"), file("x/y", ""), null}, "d d/old d/sub d/sub/old f"},
		"device then file then hard link": {[]entry{null, file("x", ""), hardLink("y", "x")}, "d d/old d/sub d/sub/old f x y"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, opts := range []Options{{}, {OneOwner: true, Owners: &noted{}}} {
				s, err := Open(filepath.Join(t.TempDir(), "store"), opts)
				if err != nil {
					t.Fatal(err)
				}
				if opts.OneOwner { // user.overlay.opaque counts in user namespaces only
					get(t, s, build(t, lower, layerOf(t, c.upper...)).save(t))
					for _, f := range opts.Owners.(*noted).files {
						t.Errorf("the owner of %s would be set", f.Name)
					}
					continue
				}
				tree := treeOf(t, merged(t, get(t, s, build(t, lower, layerOf(t, c.upper...)).save(t))))
				if got := strings.Join(slices.Sorted(maps.Keys(tree)), " "); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			}
		})
	}
}

// A file whose owner is set afterwards may be gone by then.
func TestStore_Get_ownersReplaced(t *testing.T) {
	n := &noted{}
	s, err := Open(filepath.Join(t.TempDir(), "store"), Options{OneOwner: true, Owners: n})
	if err != nil {
		t.Fatal(err)
	}
	owned := func(e entry) entry { return e.with(func(h *tar.Header) { h.Uid = 5 }) }
	get(t, s, build(t, layerOf(t, dir("r"), owned(dir("r/x")), owned(file("r/x/c", "")), owned(file("r/y/z/c", "")), link("r", "/etc"), owned(file("kept", "")))).save(t))
	if want := []Owned{{"kept", 5, 0, 0o644}}; !slices.Equal(n.files, want) {
		t.Errorf("got %v, want %v", n.files, want)
	}
}

// A whiteout does not change its folder's time.
func TestGet_whiteoutTimes(t *testing.T) {
	img := get(t, newStore(t), build(t, layerOf(t, dir("d"), file("d/f", "")), layerOf(t, dir("d"), file("d/.wh.f", ""))).save(t))
	info, err := os.Stat(filepath.Join(img.Layers[1], "d"))
	if err != nil || info.ModTime().Unix() != mtime.Unix() {
		t.Errorf("got %v, %v", info.ModTime(), err)
	}
}

func TestGet_compressions(t *testing.T) {
	plain := layerOf(t, file("f", "content"))
	var frame bytes.Buffer
	w, err := zstd.NewWriter(&frame)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	skipped := func(kind byte) []byte {
		return append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 0x184d2a50+uint32(kind)), 3), "xyz"...)
	}
	for name, c := range map[string]struct {
		layer []byte
		want  string // the error; empty if there is none
	}{
		"zstd":                {frame.Bytes(), ""},
		"skippable first":     {append(skipped(0), frame.Bytes()...), ""},
		"two skippable first": {slices.Concat(skipped(15), skipped(3), frame.Bytes()), ""},
		"skippable last":      {append(bytes.Clone(frame.Bytes()), skipped(1)...), ""},
		"xz":                  {[]byte("\xfd7zXZ\x00\x00\x04 and more"), "the layer is compressed by xz (compress it by gzip or zstd)"},
		"bzip2":               {[]byte("BZh91AY&SY and more"), "the layer is compressed by bzip2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := build(t, plain)
			b.layers = [][]byte{c.layer}
			s := newStore(t)
			if c.want == "" {
				get(t, s, b.save(t))
				return
			}
			ref := b.save(t)
			fails(t, s, ref, fumehood.ErrUnsupported)
			if _, err := s.Get(t.Context(), ref); !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// platformless writes an OCI archive of an index without platforms, and returns its path. Images of an empty
// architecture are missing.
func platformless(t *testing.T, names []string, archs ...string) string {
	t.Helper()
	layer := layerOf(t, file("f", "x"))
	describe := func(content []byte) map[string]any {
		return map[string]any{"digest": digest(content).String(), "size": len(content)}
	}
	marshal := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	blob := func(content []byte) entry { return file("blobs/sha256/"+digest(content).Hex, string(content)) }
	entries, manifests := []entry{blob(layer)}, []any{}
	for i, arch := range archs {
		config := marshal(v1.ConfigFile{Architecture: cmp.Or(arch, "none"), OS: "linux", Author: fmt.Sprint(i), RootFS: v1.RootFS{DiffIDs: []v1.Hash{digest(layer)}}})
		manifest := marshal(map[string]any{"schemaVersion": 2, "config": describe(config), "layers": []any{describe(layer)}})
		d := describe(manifest)
		if i < len(names) {
			d["annotations"] = map[string]string{refName: names[i]}
		}
		manifests = append(manifests, d)
		if arch != "" {
			entries = append(entries, blob(config), blob(manifest))
		}
	}
	entries = append(entries, file("index.json", string(marshal(map[string]any{"schemaVersion": 2, "manifests": manifests}))))
	name := filepath.Join(t.TempDir(), "index.tar")
	if err := os.WriteFile(name, layerOf(t, entries...), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestGet_indexWithoutPlatforms(t *testing.T) {
	for name, c := range map[string]struct {
		names, archs []string
		want         string // the error; empty if there is none
	}{
		"one for this machine": {archs: []string{"s390x", runtime.GOARCH, "riscv64"}},
		"others missing":       {archs: []string{"", runtime.GOARCH}},
		"same name":            {names: []string{"a", "a"}, archs: []string{"s390x", runtime.GOARCH}},
		"two":                  {archs: []string{runtime.GOARCH, runtime.GOARCH}, want: "2 images there (name one of them"},
		"two names":            {names: []string{"a", "b"}, archs: []string{"s390x", runtime.GOARCH}, want: "2 images there (name one of them"},
		"none":                 {archs: []string{"s390x", "riscv64"}, want: "image is for linux/s390x, linux/riscv64, this machine needs"},
		"all missing":          {archs: []string{"", ""}, want: "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			img, err := newStore(t).Get(context.WithoutCancel(t.Context()), "oci-archive:"+platformless(t, c.names, c.archs...))
			switch {
			case c.want == "" && err != nil, c.want != "" && !strings.Contains(fmt.Sprint(err), c.want):
				t.Errorf("got %v, want %q", err, c.want)
			case err == nil:
				_ = img.Close()
			}
		})
	}
}
