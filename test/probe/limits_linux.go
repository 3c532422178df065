package probe

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// held keeps the files of Hold reachable, so that they stay open.
var held []*os.File

func (host) Default(sig int) error {
	var action [8]uintptr // the kernel's struct sigaction: SIG_DFL, no flags, an empty mask
	const maskSize = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, maskSize, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (host) Hold(path string, n int) (int, error) {
	for i := range n {
		f, err := os.Open(path)
		if err != nil {
			return i, err
		}
		held = append(held, f)
	}
	return n, nil
}

func (host) Rlimits() (string, error) {
	var b strings.Builder
	for _, r := range []struct {
		name     string
		resource int
	}{{"cpu", unix.RLIMIT_CPU}, {"fsize", unix.RLIMIT_FSIZE}, {"nofile", unix.RLIMIT_NOFILE}, {"nproc", unix.RLIMIT_NPROC}} {
		var l unix.Rlimit
		if err := unix.Getrlimit(r.resource, &l); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s %d %d\n", r.name, l.Cur, l.Max)
	}
	return b.String(), nil
}
