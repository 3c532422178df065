// Package imagestore keeps unpacked images in a folder of the user, for sandboxes without a daemon. A layer is unpacked
// once, verified by its digest, and is then a lower layer for overlayfs: whiteouts are devices 0/0, and opaque folders
// have the attribute trusted.overlay.opaque.
//
// Several processes may use a store at once, and each may be killed at any time. Locks are locks of files (flock), which
// end with their process:
//   - ref-KEY, exclusive, while the image of a name is fetched;
//   - layer-HEX, exclusive, while a layer is unpacked or removed, and shared for a look whether it exists;
//   - image-HEX, shared, while an Image is open, and exclusive while it is removed.
//
// An image is recorded before its layers are unpacked. Cleanup looks for records after it has locked a layer, so it
// removes no layer that an import counts on.
package imagestore

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// Options configure a Store. The zero value works.
type Options struct {
	// Arch is the architecture of the images, as in GOARCH. Empty means this program's.
	Arch string
	// OneOwner makes all files belong to this process's user, which need not be root. Every folder is writable for its
	// owner, and capabilities of files are left out. A store must always be opened with the same value.
	OneOwner bool
	// Logger receives warnings. Nil disables logging.
	Logger *slog.Logger
	// Progress is called for the steps of Get that may take long. It is called concurrently and must not block. Nil
	// disables progress reports.
	Progress func(Progress)
}

// Progress is one step of getting an image.
type Progress struct {
	Image          string // the reference as given to Get
	Layer          string // the short digest of the unpacked layer; empty for the image as a whole
	Status         string // "Exporting", "Unpacking", "Unpacked"
	Current, Total int64  // bytes as the source has them, usually compressed; Total is 0 if unknown
}

// Store is a folder of unpacked images. It may be used concurrently.
type Store struct {
	dir      string
	opts     Options
	limits   limits
	keychain authn.Keychain
	retries  remote.Backoff // of requests to a registry
	compared sync.Map       // keys of references whose image this store has compared with the Engine's
}

// The folders of a store.
const (
	layersDir  = "layers-2" // HEX of the layer's uncompressed digest: the unpacked layer. The number changes with its form
	oldLayers  = "layers"   // those of older versions, which Cleanup removes
	imagesDir  = "images"   // HEX of the config's digest: the config
	refsDir    = "refs"     // KEY of a reference: its record
	keptDir    = "kept"     // HEX of the config's digest and of a folder's path: the path
	locksDir   = "locks"
	unfinished = "tmp" // HEX of a layer that is unpacked or removed; another file until it is complete
)

// Open opens the store in a folder, and creates the folder if it does not exist. Only its owner may enter it, because
// layers have set-user-id programs.
func Open(dir string, opts Options) (*Store, error) {
	const op = "open image store"
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	for _, d := range []string{"", layersDir, imagesDir, refsDir, keptDir, locksDir, unfinished} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, &fumehood.Error{
				Op: op, Class: fumehood.ErrConfig, Err: err,
				Hint: "set HOME or XDG_CACHE_HOME to a folder of this user",
			}
		}
	}
	info, err := os.Stat(dir)
	if err == nil {
		err = owner.Private(dir, info)
	}
	if err != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err, Hint: "remove it, or change its owner and mode"}
	}
	if opts.Arch == "" {
		opts.Arch = runtime.GOARCH
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Progress == nil {
		opts.Progress = func(Progress) {}
	}
	return &Store{
		dir: dir, opts: opts, limits: defaultLimits, keychain: authn.DefaultKeychain, retries: retries,
	}, nil
}

// path returns the path of an object of the store.
func (s *Store) path(folder, name string) string { return filepath.Join(s.dir, folder, name) }

// exists reports whether the store has a layer. The caller holds its lock.
func (s *Store) exists(layer v1.Hash) (bool, error) {
	_, err := os.Lstat(s.path(layersDir, layer.Hex))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write writes a file of the store. The file is never seen incomplete, not even after a crash of the machine.
func (s *Store) write(ctx context.Context, folder, name string, content []byte) error {
	f, release, err := s.create(ctx)
	if err != nil {
		return err
	}
	defer release()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), s.path(folder, name))
}

// tempFile returns an open file of the store that has no name any more, so that the kernel removes it.
func (s *Store) tempFile(ctx context.Context) (*os.File, error) {
	f, release, err := s.create(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// create creates the unfinished file. The caller has its lock until it has renamed or removed the file.
func (s *Store) create(ctx context.Context) (f *os.File, release func(), err error) {
	release, err = s.lock(ctx, fileLock+unfinishedFile, false)
	if err != nil {
		return nil, nil, err
	}
	// One that is there is of a process that was killed.
	f, err = os.OpenFile(s.path(unfinished, unfinishedFile), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		release()
		return nil, nil, err
	}
	return f, release, nil
}

// unfinishedFile is the name of an unfinished file. Names of unfinished layers are hexadecimal.
const unfinishedFile = "file"
