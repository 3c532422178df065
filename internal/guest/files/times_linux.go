package files

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// setTime sets when an open file was read and changed, whatever is at its path by now.
func setTime(f *os.File, at time.Time) error {
	both := [2]syscall.Timespec{syscall.NsecToTimespec(at.UnixNano()), syscall.NsecToTimespec(at.UnixNano())}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(syscall.SYS_UTIMENSAT, fd, 0, uintptr(unsafe.Pointer(&both)), 0, 0, 0) // futimens(3)
	})
	if errno != 0 {
		err = errors.Join(err, errno)
	}
	return err
}
