package imagestore

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Imported is an image that Import added.
type Imported struct {
	Ref string // as in the file
	ID  string // "sha256:..." of its config
}

// maxImported is the maximum number of names in a file for Import.
const maxImported = 100

// Import adds the images of a file under their names in it, as `docker load` does: an archive of `docker save`, an OCI
// archive, or a folder with an OCI layout. A name that meant another image means the new one. If the file names no
// image, the error is an ErrConfig. The results are complete even if there is an error.
func (s *Store) Import(ctx context.Context, file string) ([]Imported, error) {
	imported, err := s.importAll(ctx, file)
	return imported, s.translate(ctx, "import images of "+file, err)
}

func (s *Store) importAll(ctx context.Context, file string) (imported []Imported, err error) {
	kind := anySource
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		kind = ociLayout
	}
	from, err := openTree(kind, file)
	if err != nil {
		return nil, badFile(err)
	}
	defer func() { _ = from.close() }() // nothing was written
	all, err := from.images(kind)
	if err != nil {
		return nil, badFile(err)
	}
	var names []string
	for _, c := range all {
		names = append(names, c.names...)
	}
	if len(names) == 0 {
		hint := "use the file itself as an image: docker-archive:FILE, oci-archive:FILE, oci:FOLDER"
		return nil, fail(fumehood.ErrConfig, hint, "the file has no names of images")
	}
	if len(names) > maxImported {
		return nil, tooMany("names", len(names), maxImported)
	}
	for n, as := range names {
		if slices.Contains(names[:n], as) { // an image has one for each platform
			continue
		}
		found, err := pick(ctx, all, as)
		if err != nil {
			return imported, badFile(err)
		}
		if err := s.importOne(ctx, as, found); err != nil {
			return imported, err
		}
		imported = append(imported, Imported{as, found.id().String()})
	}
	return imported, nil
}

func (s *Store) importOne(ctx context.Context, as string, found *contents) error {
	parsed, err := name.ParseReference(as)
	if err != nil {
		return badRef(as, err)
	}
	r := reference{text: as, given: as, full: parsed.Name(), name: parsed}
	release, err := s.lock(ctx, refLock+r.key(), false)
	if err != nil {
		return err
	}
	defer release()
	img, err := s.add(ctx, r, found)
	if err != nil {
		return err
	}
	return img.Close()
}

// files finds the image that a reference to a file or folder names.
func (s *Store) files(ctx context.Context, r reference) (*contents, error) {
	from, err := openTree(r.source, r.path)
	if err != nil {
		return nil, badFile(err)
	}
	return from.image(ctx, r.source, r.tag)
}

// tree has the files of an image by slash-separated paths.
type tree struct {
	open  func(name string) (io.ReadCloser, error)
	close func() error
}

// openTree opens the files of an archive, or of a folder with an OCI layout.
func openTree(from source, path string) (tree, error) {
	if from == ociLayout {
		root, err := os.OpenRoot(path)
		if err != nil {
			return tree{}, err
		}
		open := func(name string) (io.ReadCloser, error) { // no link leads out of the folder
			return archive.Regular(root.OpenFile(name, os.O_RDONLY|archive.NonBlock, 0))
		}
		return tree{open, root.Close}, nil
	}
	f, err := archive.OpenRegular(path)
	if err != nil {
		return tree{}, err
	}
	return openArchive(f)
}

// image returns one image of a tree, which is closed with it. The tag may be empty if there is one image.
func (t tree) image(ctx context.Context, from source, tag string) (found *contents, err error) {
	all, err := t.images(from)
	if err == nil {
		found, err = pick(ctx, all, tag)
	}
	if err != nil {
		return nil, errors.Join(badFile(err), t.close())
	}
	found.close = t.close
	return found, nil
}

// pick reads the image with a tag for this architecture.
func pick(ctx context.Context, all []candidate, tag string) (*contents, error) {
	if tag != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool {
			return c.tag != tag && !slices.ContainsFunc(c.names, func(has string) bool { return same(has, tag) })
		})
		if len(all) == 0 {
			return nil, fail(fumehood.ErrConfig, "", "no image %s there", tag)
		}
	}
	c, err := choose(ctx, all)
	if err != nil {
		return nil, err
	}
	return c.read(ctx)
}

// same reports whether two names mean the same image.
func same(a, b string) bool {
	x, err := name.ParseReference(a)
	y, yerr := name.ParseReference(b)
	return a == b || err == nil && yerr == nil && x.Name() == y.Name()
}

// images returns the images of a tree. Without a source it may be either kind of archive.
func (t tree) images(from source) ([]candidate, error) {
	var all []candidate
	if from == anySource || from == dockerArchive {
		var docs []saved
		err := t.document("manifest.json", &docs)
		if from == dockerArchive && !t.isOld() || !errors.Is(err, fs.ErrNotExist) {
			for _, doc := range docs {
				read := func(context.Context) (*contents, error) { return t.docker(doc) }
				all = append(all, candidate{names: doc.RepoTags, read: read})
			}
			return all, err
		}
	}
	if from != ociLayout && t.isOld() {
		hint := "load it with a Docker Engine and save it again: docker load, docker save"
		return nil, fail(fumehood.ErrUnsupported, hint, "the archive is of Docker before 1.10: it has repositories, but no manifest.json")
	}
	var b blobs
	b.open = func(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
		return t.open(path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex))
	}
	b.manifest = func(ctx context.Context, d v1.Descriptor) ([]byte, error) { return b.read(ctx, d, maxManifest) }
	var top document
	err := t.document("index.json", &top)
	return b.images(top.Manifests, 0), err
}

// isOld reports whether a tree is an archive in Docker's first format.
func (t tree) isOld() bool {
	for _, name := range []string{"manifest.json", "index.json", "repositories"} {
		if f, err := t.open(name); err == nil {
			_ = f.Close() // it was not read
			return name == "repositories"
		}
	}
	return false
}

// read reads a file of the tree.
func (t tree) read(name string, limit int64) ([]byte, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, name, limit)
}

// document parses a file of the tree.
func (t tree) document(name string, into any) error {
	content, err := t.read(name, maxManifest)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return bad("%s: %w", name, err)
	}
	return nil
}

// saved is an image in an archive of `docker save`.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// docker reads an image of an archive of `docker save`.
func (t tree) docker(m saved) (_ *contents, err error) {
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
		found.layers = append(found.layers, blob{open: func(context.Context) (io.ReadCloser, error) { return t.open(layer) }})
	}
	return found, nil
}

// openArchive finds the files of a tar archive, which it closes if it fails.
func openArchive(f *os.File) (_ tree, err error) {
	m := members{f, map[string]*io.SectionReader{}, map[string]string{}}
	if err = m.index(); err != nil {
		return tree{}, errors.Join(err, f.Close())
	}
	return tree{m.open, f.Close}, nil
}

// members are the files of a tar archive.
type members struct {
	f     *os.File
	at    map[string]*io.SectionReader
	links map[string]string
}

// member is an open file of an archive.
type member struct{ *io.SectionReader }

func (member) Close() error { return nil }

func (m members) index() error {
	if _, err := m.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := tar.NewReader(m.f) // reads headers only, and seeks over the rest
	for n := 0; ; n++ {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && len(m.at) == 0:
			return bad("empty archive")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return m.notTar(err)
		case n == maxMembers:
			return tooMany("files in its archive", n+1, maxMembers)
		}
		at, err := m.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		switch file := path.Clean(h.Name); h.Typeflag {
		case tar.TypeReg:
			m.at[file] = io.NewSectionReader(m.f, at, h.Size)
		case tar.TypeSymlink: // docker save writes a layer once
			m.links[file] = path.Join(path.Dir(file), h.Linkname)
		case tar.TypeLink:
			m.links[file] = path.Clean(h.Linkname)
		}
	}
}

// notTar returns the error of a file that is not a tar archive.
func (m members) notTar(err error) error {
	magic := make([]byte, magicSize)
	if n, _ := m.f.ReadAt(magic, 0); n == magicSize && compression(magic) != "" {
		return fail(fumehood.ErrFile, "decompress it first", "the archive is compressed by %s", compression(magic))
	}
	return fail(fumehood.ErrFile, "", "not a tar archive: %w", err)
}

func (m members) open(file string) (io.ReadCloser, error) {
	file = path.Clean(file)
	for range 8 { // links to links
		if s, ok := m.at[file]; ok {
			return member{io.NewSectionReader(s.Outer())}, nil
		}
		target, ok := m.links[file]
		if !ok {
			break
		}
		file = target
	}
	return nil, &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
}
