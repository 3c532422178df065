package hostpath

import (
	"fmt"
	"os"

	linux "golang.org/x/sys/unix"
)

func identify(path string) (File, error) {
	f, err := os.OpenFile(path, linux.O_PATH|linux.O_CLOEXEC, 0)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	var st linux.Stat_t
	if err := linux.Fstat(int(f.Fd()), &st); err != nil {
		return File{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	resolved, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return File{Path: resolved, Device: st.Dev, Inode: st.Ino}, err
}
