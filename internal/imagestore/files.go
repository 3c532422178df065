package imagestore

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/archive"
)

// files finds the image that a reference to a file or folder names.
func (s *Store) files(ctx context.Context, r reference) (*contents, error) {
	from, err := openTree(r.source, r.path)
	if err != nil {
		return nil, badFile(err)
	}
	read := from.oci
	if r.source == dockerArchive {
		read = from.docker
	}
	found, err := read(ctx, r.tag, s.opts.Arch)
	if err != nil {
		return nil, badFile(errors.Join(err, from.close()))
	}
	found.free = func() { _ = from.close() }
	return found, nil
}

// openTree opens the files of an archive, or of a folder with an OCI layout.
func openTree(from source, path string) (tree, error) {
	if from == ociLayout {
		root, err := os.OpenRoot(path)
		if err != nil {
			return tree{}, err
		}
		return tree{open: folder{root}.open, close: root.Close}, nil
	}
	f, err := archive.OpenRegular(path)
	if err != nil {
		return tree{}, err
	}
	t, err := index(f)
	if err != nil {
		return tree{}, errors.Join(err, f.Close())
	}
	t.close = f.Close
	return t, nil
}

// badFile returns the error of a file or folder that has no image, or none that can be used.
func badFile(err error) error {
	if classed(err) {
		return err
	}
	return &fumehood.Error{Class: fumehood.ErrFile, Err: err}
}

// tree has the files of an image by slash-separated paths.
type tree struct {
	open  func(name string) (io.ReadCloser, int64, error) // also returns the size
	close func() error
}

// read reads a file of the tree.
func (t tree) read(name string, limit int64) ([]byte, error) {
	f, _, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, name, limit)
}

// blob returns a file of the tree as a layer.
func (t tree) blob(name string) blob {
	b := blob{open: func(context.Context) (io.ReadCloser, error) {
		r, _, err := t.open(name)
		if err != nil {
			err = bad("%w", err)
		}
		return r, err
	}}
	if f, size, err := t.open(name); err == nil { // otherwise the error is found when the layer is read
		b.size = size
		f.Close()
	}
	return b
}

// oci reads the image of an OCI layout. The tag may be empty if there is one image.
func (t tree) oci(ctx context.Context, tag, arch string) (*contents, error) {
	manifests, err := t.layout()
	if err != nil {
		return nil, err
	}
	if tag != "" {
		var tagged []v1.Descriptor
		for _, d := range manifests {
			full := d.Annotations[fullName]
			if d.Annotations[refName] == tag || full != "" && same(full, tag) {
				tagged = append(tagged, d)
			}
		}
		if manifests = tagged; len(tagged) == 0 {
			return nil, noTag(tag)
		}
	}
	if len(manifests) == 0 {
		return nil, bad("index.json names no image")
	}
	d, err := choose(manifests, arch)
	if err != nil {
		return nil, err
	}
	blobs := ociBlobs{t}
	manifest, err := blobs.manifest(ctx, d)
	if err != nil {
		return nil, err
	}
	return resolve(ctx, blobs, manifest, arch)
}

// Annotations with the name of an image.
const (
	fullName = "io.containerd.image.name"          // with registry and tag
	refName  = "org.opencontainers.image.ref.name" // a name, or only a tag
)

// layout returns the manifests of an OCI layout.
func (t tree) layout() ([]v1.Descriptor, error) {
	content, err := t.read("index.json", maxManifest)
	if err != nil {
		return nil, err
	}
	var top document
	if err := json.Unmarshal(content, &top); err != nil {
		return nil, bad("index.json: %w", err)
	}
	return top.Manifests, nil
}

// ociBlobs is an OCI layout as a source of blobs.
type ociBlobs struct{ tree }

func blobName(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }

func (l ociBlobs) document(d v1.Descriptor, limit int64) ([]byte, error) {
	content, err := l.read(blobName(d), limit)
	if err != nil {
		return nil, err
	}
	return verified(bytes.NewReader(content), d, limit)
}

func (l ociBlobs) manifest(_ context.Context, d v1.Descriptor) ([]byte, error) {
	return l.document(d, maxManifest)
}

func (l ociBlobs) config(_ context.Context, d v1.Descriptor) ([]byte, error) {
	return l.document(d, maxConfig)
}
func (l ociBlobs) layer(d v1.Descriptor) blob { return l.blob(blobName(d)) }

// docker reads the image of an archive that `docker save` has written. The tag may be empty if there is one image.
func (t tree) docker(_ context.Context, tag, _ string) (*contents, error) {
	all, err := t.saved()
	if err != nil {
		return nil, err
	}
	chosen := -1
	for n, m := range all {
		for _, has := range m.RepoTags {
			if tag != "" && same(has, tag) {
				chosen = n
			}
		}
	}
	switch {
	case tag == "" && len(all) == 1:
		chosen = 0
	case tag == "":
		return nil, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("%d images in the archive", len(all)), Hint: "name one of them: docker-archive:FILE:NAME:TAG",
		}
	case chosen < 0:
		return nil, noTag(tag)
	}
	m := all[chosen]
	if len(m.Layers) > maxLayers {
		return nil, tooMany("layers", len(m.Layers), maxLayers)
	}
	found := &contents{}
	if found.config, err = t.read(m.Config, maxConfig); err != nil {
		return nil, err
	}
	// The config's name is its digest.
	if want, err := v1.NewHash("sha256:" + strings.TrimSuffix(path.Base(m.Config), ".json")); err == nil && want != found.id() {
		return nil, bad("config %s has the digest %s", m.Config, found.id())
	}
	for _, layer := range m.Layers {
		found.layers = append(found.layers, t.blob(layer))
	}
	return found, nil
}

// saved is an image in an archive of `docker save`.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// saved returns the images of an archive of `docker save`.
func (t tree) saved() ([]saved, error) {
	content, err := t.read("manifest.json", maxManifest)
	if err != nil {
		return nil, err
	}
	var all []saved
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, bad("manifest.json: %w", err)
	}
	return all, nil
}

// same reports whether two names mean the same image.
func same(a, b string) bool {
	x, err := name.ParseReference(a)
	y, yerr := name.ParseReference(b)
	return err == nil && yerr == nil && x.Name() == y.Name()
}

func noTag(tag string) error {
	return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("no image %s there", tag)}
}

// folder is a folder as a tree. No link leads out of it.
type folder struct{ root *os.Root }

func (f folder) open(name string) (io.ReadCloser, int64, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|archive.NonBlock, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: archive.ErrNotRegular}
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// members are the files of a tar archive.
type members struct {
	f     *os.File
	at    map[string]section
	links map[string]string
}

type section struct{ offset, size int64 }

// index finds the files of a tar archive.
func index(f *os.File) (tree, error) {
	m := members{f, map[string]section{}, map[string]string{}}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return tree{}, err
	}
	r := tar.NewReader(f) // reads headers only, and seeks over the rest
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return tree{}, notTar(f, err)
		}
		if n == maxMembers {
			return tree{}, tooMany("files in its archive", n+1, maxMembers)
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return tree{}, err
		}
		switch file := path.Clean(h.Name); h.Typeflag {
		case tar.TypeReg:
			m.at[file] = section{at, h.Size}
		case tar.TypeSymlink: // docker save writes a layer once
			m.links[file] = path.Join(path.Dir(file), h.Linkname)
		case tar.TypeLink:
			m.links[file] = path.Clean(h.Linkname)
		}
	}
	if len(m.at) == 0 {
		return tree{}, bad("empty archive")
	}
	return tree{open: m.open}, nil
}

// notTar returns the error of a file that is not a tar archive.
func notTar(f *os.File, err error) error {
	e := &fumehood.Error{Class: fumehood.ErrFile, Err: fmt.Errorf("not a tar archive: %w", err)}
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, 0); err == nil && compression(magic) != "" {
		e.Err, e.Hint = fmt.Errorf("the archive is compressed by %s", compression(magic)), "decompress it first"
	}
	return e
}

func (m members) open(file string) (io.ReadCloser, int64, error) {
	file = path.Clean(file)
	for range 8 { // links to links
		if s, ok := m.at[file]; ok {
			return io.NopCloser(io.NewSectionReader(m.f, s.offset, s.size)), s.size, nil
		}
		target, ok := m.links[file]
		if !ok {
			break
		}
		file = target
	}
	return nil, 0, &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
}
