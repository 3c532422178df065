// Package setup sets up a sandbox from the guest's own process.
package setup

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filter filters the system calls of all threads of this process, and of the processes that they start, by a program of
// internal/native/filter. It cannot be undone. The threads must have no_new_privs or CAP_SYS_ADMIN.
func filter(program []byte) error {
	const size = 8 // of an instruction, in bytes
	n := len(program) / size
	if len(program)%size != 0 || n == 0 || n > unix.BPF_MAXINSNS {
		return fmt.Errorf("seccomp: a program of %d bytes", len(program))
	}
	list := make([]unix.SockFilter, n)
	for i := range list {
		b := program[i*size:]
		list[i] = unix.SockFilter{Code: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.LittleEndian.Uint32(b[4:])}
	}
	fprog := unix.SockFprog{Len: uint16(n), Filter: &list[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	switch {
	case errno != 0:
		return os.NewSyscallError("seccomp", errno)
	case thread != 0:
		return fmt.Errorf("seccomp: thread %d has other filters", thread)
	}
	return nil
}
