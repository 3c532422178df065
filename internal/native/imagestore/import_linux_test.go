package imagestore

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/fumehood/fumehood"
)

// ociFolder writes an OCI layout with an image under some names, and returns its folder.
func (b built) ociFolder(t testing.TB, annotation string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := l.AppendImage(b.image(t), layout.WithAnnotations(map[string]string{annotation: name})); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// saveAs writes an image as `docker save` does, under some names.
func (b built) saveAs(t testing.TB, names []string) string {
	t.Helper()
	manifest, err := json.Marshal([]saved{{"config", names, []string{"layer"}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	content := layerOf(t, file("config", string(b.config)), file("layer", string(b.layers[0])), file("manifest.json", string(manifest)))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStore_Import(t *testing.T) {
	noEngine(t)
	one := build(t, layerOf(t, file("one", "1")))
	for name, c := range map[string]struct {
		file string
		refs []string
	}{
		"docker":        {one.saveAs(t, []string{"a:1", "registry.example/b"}), []string{"a:1", "registry.example/b"}},
		"oci full name": {one.ociFolder(t, fullName, "docker.io/library/a:1"), []string{"docker.io/library/a:1"}},
		"oci name":      {one.ociFolder(t, refName, "localhost/c:2", "latest"), []string{"localhost/c:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			imported, err := s.Import(t.Context(), c.file)
			if err != nil {
				t.Fatal(err)
			}
			var refs []string
			for _, i := range imported {
				refs = append(refs, i.Ref)
				if img := get(t, s, i.Ref); i.ID != one.id() || img.ID != one.id() || !slices.Equal(img.Config.Env, []string{"A=B"}) {
					t.Errorf("got %+v, %+v", i, img)
				}
			}
			if !slices.Equal(refs, c.refs) {
				t.Errorf("got %q, want %q", refs, c.refs)
			}
		})
	}
}

// A name means the image that was imported last, also one that came from elsewhere.
func TestStore_Import_again(t *testing.T) {
	noEngine(t)
	s := newStore(t)
	for _, content := range []string{"1", "2", "1"} {
		b := build(t, layerOf(t, file("f", content)))
		if _, err := s.Import(t.Context(), b.saveAs(t, []string{"test"})); err != nil {
			t.Fatal(err)
		}
		if img := get(t, s, "test:latest"); img.ID != b.id() {
			t.Errorf("got %s, want %s", img.ID, b.id())
		}
	}
}

func TestStore_Import_rejected(t *testing.T) {
	noEngine(t)
	one := build(t, layerOf(t, file("one", "1")))
	lying := one
	lying.layers = [][]byte{layerOf(t, file("one", "2"))}
	many := make([]string, maxImported+1)
	for n := range many {
		many[n] = "many:" + strconv.Itoa(n)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file  string
		class error
	}{
		"missing":      {filepath.Join(t.TempDir(), "missing"), fumehood.ErrFile},
		"no archive":   {text, fumehood.ErrFile},
		"empty folder": {t.TempDir(), fumehood.ErrFile},
		"no names":     {one.saveAs(t, nil), fumehood.ErrConfig},
		"only tags":    {one.ociFolder(t, refName, "latest"), fumehood.ErrConfig},
		"bad name":     {one.saveAs(t, []string{"Bad Name"}), fumehood.ErrConfig},
		"many names":   {one.saveAs(t, many), fumehood.ErrLimit},
		"wrong digest": {lying.saveAs(t, []string{"lying"}), fumehood.ErrConfig},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			imported, err := s.Import(t.Context(), c.file)
			if !errors.Is(err, c.class) || len(imported) > 0 {
				t.Errorf("got %v, error %v of class %v, want %v", imported, err, fumehood.ClassOf(err), c.class)
			}
			left(t, s, unfinished, refsDir)
		})
	}
}

// Pull returns the registry's image, whatever a file has under the name and wherever the tag moves.
func TestStore_Pull(t *testing.T) {
	noEngine(t)
	s, other, b := newStore(t), build(t, layerOf(t, file("f", "1"))), sample(t)
	name := serve(t, nil) + "/x:1"
	push(t, name, b.image(t))
	if _, err := s.Import(t.Context(), other.saveAs(t, []string{name})); err != nil {
		t.Fatal(err)
	}
	manifest, err := b.image(t).Digest()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // from the registry, from the store
		img, err := s.Pull(t.Context(), name, true)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(name, ":1") + "@" + manifest.String(); img.ID != b.id() || img.Pinned != want {
			t.Errorf("got %s %s, want %s %s", img.ID, img.Pinned, b.id(), want)
		}
		img.Close()
		push(t, name, other.image(t))
	}
	if img := get(t, s, name); img.ID != other.id() || img.Pinned != "" {
		t.Errorf("got %s %s", img.ID, img.Pinned)
	}
	for _, ref := range []string{b.save(t), b.id(), "docker-daemon:x"} {
		if _, err := s.Pull(t.Context(), ref, true); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}
