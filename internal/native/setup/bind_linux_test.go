package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/test/tier"
)

// A volume's place may be in a folder that a process outside changes at the same time. Only the volume gets an owner.
func TestVolume_attach_race(t *testing.T) {
	if os.Geteuid() != 0 {
		tier.Missing(t, tier.CI, errors.New("mounts take root"))
	}
	dir := t.TempDir()
	place, other, link := filepath.Join(dir, "place"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
	owners := map[string]uint32{place: 1234, other: 5678}
	folders := map[string]*os.File{}
	for name, owner := range owners {
		err := errors.Join(os.Mkdir(name, 0o755), os.Chown(name, int(owner), 0))
		if err == nil {
			folders[name], err = os.Open(name) //nolint:gosec // a test's
		}
		if err != nil {
			t.Fatal(err)
		}
		defer folders[name].Close()
	}
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	done, swaps := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-done:
				swaps <- nil
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, place, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				swaps <- err
				return
			}
		}
	}()
	attached := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with its mount namespace
		attached <- attachOften(place)
	}()
	err := <-attached
	close(done)
	if err := errors.Join(err, <-swaps); err != nil {
		t.Fatal(err)
	}
	for name, want := range owners {
		var st unix.Stat_t
		if err := unix.Fstat(int(folders[name].Fd()), &st); err != nil || st.Uid != want { //nolint:gosec // a descriptor
			t.Errorf("%s has the owner %d, %v", name, st.Uid, err)
		}
	}
}

// attachOften attaches volumes at a path, in a mount namespace of the calling thread.
func attachOften(at string) error {
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	for n := 0; err == nil && n < 1500; n++ {
		m, merr := newFS("tmpfs", restricted)
		if merr != nil {
			return merr
		}
		err = Volume{Container: at, Writable: true}.attach(m)
		if err == nil {
			err = unix.Unmount(fmt.Sprint("/proc/self/fd/", m.fd), unix.MNT_DETACH)
		}
		m.close()
	}
	return err
}
