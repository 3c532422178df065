// Package imagestore keeps unpacked images in a folder of the user, for sandboxes without a daemon. A layer is unpacked
// once, verified by its digest, and is then a lower layer for overlayfs: whiteouts are devices 0/0, and opaque folders
// have the attribute trusted.overlay.opaque.
//
// Several processes may use a store at once, and each may be killed at any time. A lock is a range of one byte in the
// file "lock", at a hash of the lock's name. The kernel releases it when its process ends:
//   - store, shared, while an object is looked up or recorded, and exclusive while Cleanup decides; always for a short time;
//   - ref-KEY, exclusive, while the image of a name is fetched;
//   - layer-HEX, exclusive, while a layer is unpacked;
//   - image-HEX, shared, while an Image is open.
//
// An image is recorded, and its lock taken, before its layers are unpacked. So Cleanup removes no layer that is needed.
package imagestore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// Options configure a Store. The zero value works.
type Options struct {
	// OneOwner makes all files belong to this process's user, which need not be root. Every folder is writable for its
	// owner, and capabilities of files are left out. A store must always be opened with the same value.
	OneOwner bool
	// Owners sets the owners and modes of files afterwards, if OneOwner is set. Nil leaves them as OneOwner says.
	Owners Owners
	// Logger receives warnings. Nil disables logging.
	Logger *slog.Logger
	// Progress is called for the steps of Get that may take long: "Exporting" an image, "Unpacking" and "Unpacked" a layer. It is called concurrently and must not block. Nil
	// disables progress reports.
	Progress func(provider.Progress)
}

// Store is a folder of unpacked images. It may be used concurrently.
type Store struct {
	dir      string
	opts     Options
	limits   limits
	keychain authn.Keychain // these are as in registry.Access
	retries  remote.Backoff
	patience time.Duration
	silence  time.Duration // of an Engine that exports an image
	compared sync.Map      // keys of references whose image this store has compared with the Engine's

	mu     sync.Mutex
	shared map[string]*sharedLock // the shared locks that this store has, by name
}

// sharedLock is a shared lock. All that hold it at once use one descriptor: a process with thousands of sandboxes of one
// image would otherwise reach its limit, and each fork would search thousands of locks.
type sharedLock struct {
	holders int
	release func()
}

// The folders of a store.
const (
	layersDir  = "layers-2" // HEX of the layer's uncompressed digest: the unpacked layer. The number changes with its form
	imagesDir  = "images"   // HEX of the config's digest: the config
	refsDir    = "refs"     // KEY of a reference: its record
	keptDir    = "kept"     // HEX of the config's digest and of a folder's path: the path
	unfinished = "tmp"      // HEX of a layer that is unpacked; files until they are complete; what is removed
)

// Open opens the store in a folder, and creates the folder if it does not exist. Only its owner may enter it, because
// layers have set-user-id programs.
func Open(dir string, opts Options) (*Store, error) {
	const op = "open image store"
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	for _, d := range []string{"", layersDir, imagesDir, refsDir, keptDir, unfinished} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			hint := "set HOME or XDG_CACHE_HOME to a folder of this user"
			return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err, Hint: hint}
		}
	}
	info, err := os.Stat(dir)
	if err == nil {
		err = owner.Private(dir, info)
	}
	if err != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err, Hint: "remove it, or change its owner and mode"}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Progress == nil {
		opts.Progress = func(provider.Progress) {}
	}
	return &Store{dir: dir, opts: opts, limits: defaultLimits, silence: engineSilence, shared: map[string]*sharedLock{}}, nil
}

// path returns the path of an object of the store.
func (s *Store) path(folder, name string) string { return filepath.Join(s.dir, folder, name) }

// exists reports whether the store has a layer.
func (s *Store) exists(layer v1.Hash) (bool, error) {
	_, err := os.Lstat(s.path(layersDir, layer.Hex))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write writes a file of the store. The file is never seen incomplete, not even after a crash of the machine. The caller
// has the store's lock.
func (s *Store) write(folder, name string, content []byte) error {
	f, err := os.CreateTemp(s.path(unfinished, ""), "file-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.path(folder, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Folder makes an empty folder below the store, for an image that is made in another way. Only this process's user may
// enter it. Others that call Folder with the same name wait until release removes it. Cleanup removes that of a killed
// process. The name has no slash, and is not the digest of a layer.
func (s *Store) Folder(ctx context.Context, name string) (dir string, release func() error, err error) {
	dir = s.path(unfinished, name)
	unlock, err := s.lock(ctx, layerLock+name, false)
	if err != nil {
		return "", nil, s.translate(ctx, "make folder", err)
	}
	if err := errors.Join(owner.RemoveFolder(dir), os.Mkdir(dir, 0o700)); err != nil {
		unlock()
		return "", nil, s.translate(ctx, "make folder", err)
	}
	return dir, func() error {
		defer unlock()
		return owner.RemoveFolder(dir)
	}, nil
}

// The locks, or the beginnings of their names.
const (
	storeLock = "store"
	refLock   = "ref-"
	layerLock = "layer-"
	imageLock = "image-"
)

// lockPoll is how often a process checks whether another one has released a lock.
const lockPoll = 10 * time.Millisecond

// lock waits for a lock.
func (s *Store) lock(ctx context.Context, name string, shared bool) (release func(), err error) {
	for {
		if release, err := s.tryLock(name, shared); release != nil || err != nil {
			return release, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// tryLock takes a lock. It returns nil if others have it.
func (s *Store) tryLock(name string, shared bool) (release func(), err error) {
	if !shared {
		return s.takeLock(name, unix.F_WRLCK)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.shared[name]
	if held == nil {
		release, err := s.takeLock(name, unix.F_RDLCK)
		if release == nil {
			return nil, err
		}
		held = &sharedLock{release: release}
		s.shared[name] = held
	}
	held.holders++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if held.holders--; held.holders == 0 {
			delete(s.shared, name)
			held.release()
		}
	}, nil
}

// takeLock takes a lock of the kernel, F_RDLCK or F_WRLCK. It returns nil if others have it.
func (s *Store) takeLock(name string, kind int16) (release func(), err error) {
	f, err := os.OpenFile(s.path("", "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(name))
	at := unix.Flock_t{Type: kind, Start: int64(binary.BigEndian.Uint64(sum[:]) >> 1), Len: 1} //nolint:gosec // 63 bits
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &at); err != nil {
		if errors.Is(err, unix.EAGAIN) {
			return nil, f.Close()
		}
		return nil, errors.Join(os.NewSyscallError("fcntl", err), f.Close())
	}
	return func() {
		at.Type = unix.F_UNLCK // a child that this process is starting may have the file open for a moment
		_ = errors.Join(unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &at), f.Close())
	}, nil
}

// withLock calls f with an exclusive lock. It does not call f if others have the lock.
func (s *Store) withLock(name string, f func() error) error {
	release, err := s.tryLock(name, false)
	if release == nil {
		return err
	}
	defer release()
	return f()
}

// Free returns how many bytes this process may still write to the disk of the store.
func (s *Store) Free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return 0, &fumehood.Error{Op: "measure image store", Path: s.dir, Class: fumehood.ErrInfrastructure, Err: err}
	}
	return int64(st.Bavail) * st.Bsize, nil //nolint:gosec // no disk is so large
}
