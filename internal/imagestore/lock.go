package imagestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// The kinds of locks.
const (
	refLock   = "ref-"
	layerLock = "layer-"
	imageLock = "image-"
	fileLock  = "file-"
)

// lockPoll is how often a process checks whether another one has released a lock.
const lockPoll = 10 * time.Millisecond

// lock waits for a lock.
func (s *Store) lock(ctx context.Context, name string, shared bool) (release func(), err error) {
	for {
		l := flock.New(s.path(locksDir, name))
		if shared {
			_, err = l.TryRLockContext(ctx, lockPoll)
		} else {
			_, err = l.TryLockContext(ctx, lockPoll)
		}
		if err != nil {
			return nil, err
		}
		if current(l) {
			return func() { _ = l.Unlock() }, nil
		}
		_ = l.Unlock()
	}
}

// tryLock takes an exclusive lock. It returns nil if others have the lock.
func (s *Store) tryLock(name string) (*flock.Flock, error) {
	l := flock.New(s.path(locksDir, name))
	ok, err := l.TryLock()
	if err != nil || !ok {
		return nil, err
	}
	if !current(l) { // others have the new one, or will
		return nil, l.Unlock()
	}
	return l, nil
}

// current reports whether the file of a lock still has its name. Cleanup removes files of locks while it has them.
func current(l *flock.Flock) bool {
	has, err := l.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(l.Path())
	return err == nil && os.SameFile(has, named)
}

// discard removes the file of a lock, which the caller has exclusively, and releases it.
func discard(l *flock.Flock) error {
	err := os.Remove(l.Path())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.Unlock())
}
