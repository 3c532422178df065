package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Tree is a job for a process that is root of a user namespace: it changes files of all users there. The host sends it
// as JSON, with an Owned for each file after it.
type Tree struct {
	// Dir is a folder of the host. Nothing changes it meanwhile.
	Dir []byte `json:"dir"`
	// Remove says that the folder is removed.
	Remove bool `json:"remove,omitempty"`
}

// Owned is a file of a Tree, with its owner in the user namespace. A file that does not exist is ignored.
type Owned struct {
	Name []byte `json:"name"` // relative to Dir; links in it are not followed
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	Mode int64  `json:"mode"` // as in chmod(2); -1 leaves it as it is
}

// Own reads a Tree and does the job.
func Own(in io.Reader) error {
	var t Tree
	d := json.NewDecoder(in)
	if err := d.Decode(&t); err != nil {
		return err
	}
	dir := string(t.Dir)
	if t.Remove {
		return os.RemoveAll(dir)
	}
	top, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(top)
	for {
		var f Owned
		if err := d.Decode(&f); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := f.set(top); err != nil {
			return fmt.Errorf("set the owner of %s: %w", filepath.Join(dir, string(f.Name)), err)
		}
	}
}

// set sets owner and mode.
func (f Owned) set(top int) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(top, string(f.Name), &how)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil // replaced by a later entry of the layer
	}
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	return setOwner(fd, f.UID, f.GID, f.Mode)
}

// setOwner sets the owner of what a descriptor stands for, and the mode unless it is negative. /proc must be mounted.
func setOwner(fd, uid, gid int, mode int64) error {
	if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
		return os.NewSyscallError("fchownat", err)
	}
	if mode < 0 {
		return nil
	}
	return os.NewSyscallError("chmod", unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), uint32(mode))) //nolint:gosec // 12 bits
}
