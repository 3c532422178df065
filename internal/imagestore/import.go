package imagestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/fumehood/fumehood"
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

func (s *Store) importAll(ctx context.Context, file string) ([]Imported, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, badFile(err)
	}
	kind := ociArchive
	if info.IsDir() {
		kind = ociLayout
	}
	from, err := openTree(kind, path)
	if err != nil {
		return nil, badFile(err)
	}
	defer func() { _ = from.close() }() // nothing was written
	read := from.docker
	names, err := from.dockerNames()
	if errors.Is(err, fs.ErrNotExist) {
		read = from.oci
		names, err = from.ociNames()
	}
	switch {
	case err != nil:
		return nil, badFile(err)
	case len(names) == 0:
		return nil, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: errors.New("the file has no names of images"),
			Hint: "use the file itself as an image: docker-archive:FILE, oci-archive:FILE, oci:FOLDER",
		}
	case len(names) > maxImported:
		return nil, tooMany("names", len(names), maxImported)
	}
	var imported []Imported
	for _, as := range names {
		r := reference{text: as, given: as}
		if r.name, err = name.ParseReference(as); err != nil {
			return imported, badRef(as, err)
		}
		found, err := read(ctx, as, s.opts.Arch)
		if err != nil {
			return imported, badFile(err)
		}
		if err := s.importOne(ctx, r, found); err != nil {
			return imported, err
		}
		imported = append(imported, Imported{as, found.id().String()})
	}
	return imported, nil
}

func (s *Store) importOne(ctx context.Context, r reference, found *contents) error {
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

// dockerNames returns the names of the images in an archive of `docker save`.
func (t tree) dockerNames() ([]string, error) {
	all, err := t.saved()
	var names []string
	for _, m := range all {
		names = append(names, m.RepoTags...)
	}
	return names, err
}

// ociNames returns the names of the images in an OCI layout, without those that are only tags.
func (t tree) ociNames() ([]string, error) {
	manifests, err := t.layout()
	var names []string
	for _, d := range manifests {
		as := d.Annotations[fullName]
		if as == "" {
			as = d.Annotations[refName]
		}
		if strings.ContainsAny(as, "/:") && !slices.Contains(names, as) { // an image has one for each platform
			names = append(names, as)
		}
	}
	return names, err
}
