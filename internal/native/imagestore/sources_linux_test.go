package imagestore

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/fumehood/fumehood"
)

// image returns the image for the library's writers.
func (b built) image(t testing.TB) v1.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	b.saveTo(t, file)
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// sample is an image of two layers with all that layers may have.
func sample(t testing.TB) built {
	t.Helper()
	return build(t,
		layerOf(t,
			dir("bin"), file("bin/su", "program").with(func(h *tar.Header) { h.Mode, h.Uid, h.Gid = 0o6755, 3, 4 }),
			hardLink("bin/su2", "bin/su").with(func(h *tar.Header) { h.Mode, h.Uid, h.Gid = 0o6755, 3, 4 }),
			file("ping", "x").attr("security.capability", "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00").attr("user.a", "b"),
			entry{Header: tar.Header{Name: "pipe", Typeflag: tar.TypeFifo, Mode: 0o640, Uid: 5, ModTime: mtime}},
			link("link", "/etc/passwd"), dir("gone"), file("gone/f", "x"), dir("opaque"), file("opaque/old", "x"), file("deleted", "x"),
			dir("replaced"), file("replaced/old", "x"),
		),
		layerOf(t,
			file(".wh.gone", ""), dir("opaque"), file("opaque/"+opaqueMarker, ""), file("opaque/new", "y"), file(".wh.deleted", ""),
			file(".wh.replaced", ""), dir("replaced"), file("replaced/new", "y"),
			dir("tmp").with(func(h *tar.Header) { h.Mode = 0o1777 }),
		),
	)
}

// noEngine hides the Docker Engine from a test.
func noEngine(t testing.TB) {
	t.Helper()
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none.sock"))
}

func checkSample(t testing.TB, img *Image, b built) {
	t.Helper()
	if img.ID != b.id() || len(img.Layers) != 2 {
		t.Errorf("%+v", img)
	}
	if c := img.Config; c.User != "7:8" || c.WorkingDir != "/w" || c.StopSignal != "SIGINT" || !slices.Equal(c.Env, []string{"A=B"}) {
		t.Errorf("%+v", c)
	}
	all := treeOf(t, merged(t, img))
	for _, gone := range []string{"gone", "opaque/old", "deleted", "replaced/old", ".wh.gone"} {
		if has, ok := all[gone]; ok {
			t.Errorf("%s: %s", gone, has)
		}
	}
	sum := hash([]byte("program"))
	for name, want := range map[string]string{
		"bin/su":       "0 6755 3:4 7 1500000000 \"\" " + sum + " ",
		"bin/su2":      "hard link to bin/su",
		"pipe":         "6 640 5:0 0 1500000000 \"\"  ",
		"link":         "2 777 0:0 0 1500000000 \"/etc/passwd\"  ",
		"opaque/new":   "0 644 0:0 1 1500000000 \"\" " + hash([]byte("y")) + " ",
		"replaced/new": "0 644 0:0 1 1500000000 \"\" " + hash([]byte("y")) + " ",
		"tmp":          "5 1777 0:0 0 1500000000 \"\"  ",
		"ping":         "0 644 0:0 1 1500000000 \"\" " + hash([]byte("x")) + " 0100000200200000000000000000000000000000",
	} {
		if all[name] != want {
			t.Errorf("%s: got %s, want %s", name, all[name], want)
		}
	}
}

func TestGet_sources(t *testing.T) {
	noEngine(t)
	b := sample(t)
	ref := serve(t, nil) + "/test/sample:1"
	push(t, ref, b.image(t))
	d, err := b.image(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "layout")
	at, err := layout.Write(folder, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := at.AppendImage(b.image(t), layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "one"})); err != nil {
		t.Fatal(err)
	}
	for name, ref := range map[string]string{
		"docker-archive":     b.save(t),
		"docker-archive tag": b.save(t) + ":test",
		"oci":                "oci:" + folder,
		"oci tag":            "oci:" + folder + ":one",
		"oci-archive":        "oci-archive:" + packed(t, folder),
		"registry":           ref,
		"registry digest":    strings.TrimSuffix(ref, ":1") + "@" + d.String(),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			if img, err := s.Find(t.Context(), ref); !errors.Is(err, ErrMissing) || !errors.Is(err, fumehood.ErrConfig) {
				t.Error(img, err)
			}
			img := get(t, s, ref)
			checkSample(t, img, b)
			for _, ref := range []string{ref, b.id()} {
				again, err := s.Find(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				if again.ID != img.ID || !slices.Equal(again.Layers, img.Layers) {
					t.Errorf("%+v", again)
				}
				again.Close()
			}
		})
	}
}

// packed returns a tar archive of a folder.
func packed(t testing.TB, folder string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "layout.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestGet_files(t *testing.T) {
	noEngine(t)
	b := sample(t)
	at := t.TempDir()
	write := func(name string, content []byte) string {
		t.Helper()
		file := filepath.Join(at, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	b.saveTo(t, filepath.Join(at, "good.tar"))
	good, err := os.ReadFile(filepath.Join(at, "good.tar"))
	if err != nil {
		t.Fatal(err)
	}
	config := digest(b.config).Hex + ".json"
	archive := func(manifest string, more ...entry) []byte {
		return layerOf(t, append([]entry{file(config, string(b.config)), file("a/layer.tar", string(b.layers[0])), file("manifest.json", manifest)}, more...)...)
	}
	one := `{"Config":"` + config + `","RepoTags":["a:1"],"Layers":["a/layer.tar","b/layer.tar"]}`
	if err := os.MkdirAll(filepath.Join(at, "linked", "blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(at, "linked", "index.json")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, ref string
		class     error
		text      string
	}{
		{"missing", "docker-archive:" + at + "/none.tar", fumehood.ErrFile, "no such file"},
		{"folder", "docker-archive:" + at, fumehood.ErrFile, "not a regular file"},
		{"compressed", "docker-archive:" + write("z.tar", gzipped(t, good)), fumehood.ErrFile, "compressed by gzip (decompress it first)"},
		{"compressed by xz", "docker-archive:" + write("xz.tar", []byte("\xfd7zXZ\x00"+strings.Repeat("no", 1000))), fumehood.ErrFile, "compressed by xz (decompress it first)"},
		{"first format", "docker-archive:" + write("old.tar", layerOf(t, file("repositories", `{"a":{"1":"b"}}`), file("b/json", "{}"), file("b/layer.tar", "x"))), fumehood.ErrUnsupported, "Docker before 1.10"},
		{"not a tar", "oci-archive:" + write("no.tar", []byte(strings.Repeat("no", 1000))), fumehood.ErrFile, "not a tar archive"},
		{"empty", "docker-archive:" + write("empty.tar", layerOf(t)), fumehood.ErrConfig, "empty archive"},
		{"truncated", "docker-archive:" + write("half.tar", good[:len(good)/2]), fumehood.ErrConfig, ""},
		{"wrong tag", "docker-archive:" + at + "/good.tar:other:1", fumehood.ErrConfig, "no image other:1 there"},
		{"two images", "docker-archive:" + write("two.tar", archive("["+one+","+one+"]")), fumehood.ErrConfig, "2 images there"},
		{"no layer", "docker-archive:" + write("nolayer.tar", archive("["+one+"]")), fumehood.ErrConfig, "b/layer.tar"},
		{"link loop", "docker-archive:" + write("loop.tar", archive("["+one+"]", link("b/layer.tar", "../c"), link("c", "b/layer.tar"))), fumehood.ErrConfig, "b/layer.tar"},
		{"link outside", "docker-archive:" + write("out.tar", archive("["+one+"]", link("b/layer.tar", "/etc/passwd"))), fumehood.ErrConfig, "does not exist"},
		{"lying config", "docker-archive:" + write("lie.tar", layerOf(t, file(strings.Repeat("0", 64)+".json", string(b.config)),
			file("manifest.json", `[{"Config":"`+strings.Repeat("0", 64)+`.json"}]`))), fumehood.ErrConfig, "has the digest"},
		{"layout missing", "oci:" + at + "/none", fumehood.ErrFile, "no such file"},
		{"layout empty", "oci:" + t.TempDir(), fumehood.ErrFile, "index.json"},
		{"layout linked", "oci:" + at + "/linked", fumehood.ErrFile, "escapes"},
		{"built-in", "fumehood-builtin/agent", fumehood.ErrConfig, "no registry has the built-in image"},
		{"built-in, in full", "docker.io/fumehood-builtin/agent:1", fumehood.ErrConfig, "no registry has the built-in image"},
		{"bad name", "UPPER CASE", fumehood.ErrConfig, "could not parse"},
		{"no path", "oci:", fumehood.ErrConfig, "path missing"},
		{"unknown id", "sha256:" + strings.Repeat("0", 64), fumehood.ErrConfig, "no such image"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStore(t)
			fails(t, s, test.ref, test.class)
			if _, err := s.Get(t.Context(), test.ref); err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("error %v, want %q", err, test.text)
			}
		})
	}
	t.Run("linked layer", func(t *testing.T) { // as older Engines write a layer that is there twice
		s := newStore(t)
		ref := write("linked.tar", archive("["+one+"]", file("c/layer.tar", string(b.layers[1])), link("b/layer.tar", "../c/layer.tar")))
		checkSample(t, get(t, s, "docker-archive:"+ref), b)
	})
}

func TestGet_platform(t *testing.T) {
	noEngine(t)
	b, other := sample(t), build(t, layerOf(t))
	index := func(platforms ...*v1.Platform) v1.ImageIndex {
		all := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
		for n, p := range platforms {
			img := b.image(t)
			if n < len(platforms)-1 {
				img = other.image(t)
			}
			all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
		}
		return all
	}
	host := serve(t, nil)
	s := newStore(t)
	push(t, host+"/several", index(&v1.Platform{OS: "linux", Architecture: "s390x"}, &v1.Platform{OS: "unknown", Architecture: "unknown"}, &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	checkSample(t, get(t, s, host+"/several"), b)
	push(t, host+"/nested", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index(&v1.Platform{OS: "linux", Architecture: runtime.GOARCH})}))
	checkSample(t, get(t, s, host+"/nested"), b)

	push(t, host+"/others", index(&v1.Platform{OS: "linux", Architecture: "s390x"}, &v1.Platform{OS: "windows", Architecture: runtime.GOARCH}))
	_, err := s.Get(t.Context(), host+"/others")
	if want := "image is for linux/s390x, windows/" + runtime.GOARCH + ", this machine needs linux/"; !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	deep := index(&v1.Platform{OS: "linux", Architecture: runtime.GOARCH})
	for range maxDepth {
		deep = mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: deep})
	}
	push(t, host+"/deep", deep)
	if _, err := s.Get(t.Context(), host+"/deep"); !errors.Is(err, fumehood.ErrConfig) {
		t.Error(err)
	}
}

func TestOpen_errors(t *testing.T) {
	base := t.TempDir()
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(base, "file"), Options{}); !errors.Is(err, fumehood.ErrConfig) {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(base, "store"), Options{}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(base, "store")); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	for _, change := range []func(dir string) error{
		func(dir string) error { return os.Chmod(dir, 0o755) },
		func(dir string) error { return errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 12345, -1)) },
	} {
		if err := change(filepath.Join(base, "store")); errors.Is(err, fs.ErrPermission) {
			t.Skip("needs root")
		} else if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(filepath.Join(base, "store"), Options{}); !errors.Is(err, fumehood.ErrConfig) {
			t.Error(err)
		}
	}
}
