package docker

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// identify returns the file that a path leads to now: its path without links, and its identity.
func identify(path string) (resolved string, id wire.FileID, err error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", id, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", id, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	boot, err := os.ReadFile(wire.BootID)
	if err != nil {
		return "", id, err
	}
	resolved, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	return resolved, wire.FileID{Boot: strings.TrimSpace(string(boot)), Device: st.Dev, Inode: st.Ino}, err
}
