package guestbin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/guestbin/source"
	"github.com/fumehood/fumehood/internal/owner"
)

const (
	// cachedFor is the age from which cached guests of other sources are removed. They are removed after a build.
	cachedFor = 7 * 24 * time.Hour
	// lockPoll is how often a process checks whether another one has finished its build.
	lockPoll = 100 * time.Millisecond
)

// cache is the folder of the guests of this program's sources, in the user's cache folder. Only the user may enter
// it, since its guests run in every sandbox.
type cache struct {
	all  string // the folder of all guests, of mode 0700
	root *os.Root
}

// openCache opens the cache, and creates it if necessary.
func openCache() (*cache, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, noCache(err)
	}
	key, err := source.Key()
	if err != nil {
		return nil, err
	}
	all := filepath.Join(base, "fumehood", "guests")
	if err := os.MkdirAll(all, 0o700); err != nil {
		return nil, noCache(err)
	}
	info, err := os.Lstat(all)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", all)
	}
	if err == nil {
		err = owner.Private(all, info)
	}
	if err != nil {
		return nil, noCache(err)
	}
	dir := filepath.Join(all, key[:16])
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, noCache(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, noCache(err)
	}
	return &cache{all, root}, nil
}

func noCache(err error) error {
	return &fumehood.Error{
		Class: fumehood.ErrConfig, Err: fmt.Errorf("the guest needs a cache folder that only this user can enter: %w", err),
		Hint: "set HOME or XDG_CACHE_HOME to a folder of this user; a released build needs no cache folder",
	}
}

func (c *cache) close() { _ = c.root.Close() }

func cachedName(arch string) string { return "linux-" + arch }

// guest returns the guest for an architecture. If it is not cached, or is incomplete, the error is fs.ErrNotExist.
func (c *cache) guest(arch string) (Binary, error) {
	want, err := c.file(cachedName(arch)+".sha256", 64)
	if err != nil {
		return Binary{}, err
	}
	program, err := c.file(cachedName(arch), MaxProgram)
	if err != nil {
		return Binary{}, err
	}
	if sum(program) != string(want) {
		return Binary{}, fs.ErrNotExist
	}
	return Of(program), nil
}

// file reads at most limit bytes of a regular file that belongs to the user.
func (c *cache) file(name string, limit int64) ([]byte, error) {
	info, err := c.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, noCache(fmt.Errorf("%s is not a regular file", filepath.Join(c.root.Name(), name)))
	}
	if err := owner.Private(filepath.Join(c.root.Name(), name), info); err != nil {
		return nil, noCache(err)
	}
	f, err := c.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// write stores a guest. A reader sees all of it or nothing.
func (c *cache) write(arch string, program []byte) error {
	for _, f := range []struct {
		name    string
		content []byte
	}{{cachedName(arch), program}, {cachedName(arch) + ".sha256", []byte(sum(program))}} {
		if err := c.root.RemoveAll(f.name + ".new"); err != nil {
			return err
		}
		if err := c.root.WriteFile(f.name+".new", f.content, 0o600); err != nil {
			return err
		}
		if err := c.root.Rename(f.name+".new", f.name); err != nil {
			return err
		}
	}
	return nil
}

// newLock returns the lock that a process holds while it builds a guest.
func newLock(c *cache, arch string) *flock.Flock {
	return flock.New(filepath.Join(c.root.Name(), cachedName(arch)+".lock"), flock.SetPermissions(0o600))
}

// sweep removes old guests of other sources.
func (c *cache) sweep(log *slog.Logger) {
	entries, err := os.ReadDir(c.all)
	if err != nil {
		log.Warn("cannot list old guests in the cache", "error", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Name() == filepath.Base(c.root.Name()) || time.Since(info.ModTime()) < cachedFor {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.all, e.Name())); err != nil {
			log.Warn("cannot remove an old guest from the cache", "error", err)
		}
	}
}

// fromCache returns the guest for an architecture from the cache, and builds it if it is missing. If several
// processes need it at once, only one builds it.
func fromCache(ctx context.Context, arch string, log *slog.Logger) (Binary, error) {
	c, err := openCache()
	if err != nil {
		return Binary{}, err
	}
	defer c.close()
	if guest, err := c.guest(arch); !errors.Is(err, fs.ErrNotExist) {
		return guest, err
	}
	lock := newLock(c, arch)
	defer lock.Close()
	if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
		return Binary{}, fmt.Errorf("wait for another process that builds the guest: %w", err)
	}
	if guest, err := c.guest(arch); !errors.Is(err, fs.ErrNotExist) {
		return guest, err // another process has built it
	}
	log.Info("building the guest once with the local Go toolchain: this program was built without it",
		"platform", "linux/"+arch, "folder", c.root.Name())
	program, err := source.Build(ctx, arch)
	if errors.Is(err, source.ErrNoToolchain) {
		return Binary{}, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("this program was built without the guest, which cannot be built here: %w", err),
			Hint: "install Go, or build the program with `make build`, or run `go install " + source.Module + "/cmd/fumehood@latest`",
		}
	}
	if err != nil {
		return Binary{}, err
	}
	c.sweep(log)
	return Of(program), c.write(arch, program)
}
