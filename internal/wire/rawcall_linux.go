package wire

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls in this file bypass Go's scheduler. Otherwise the first one after an idle time would wake the scheduler's
// monitoring thread. They must not block.

// RawRead reads from a non-blocking file descriptor.
func RawRead(fd int, p []byte) (int, error) {
	return result(unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// RawWrite writes to a file of the kernel.
func RawWrite(fd int, p []byte) (int, error) {
	return result(unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))))
}

// RawPread reads from the beginning of a file of the kernel.
func RawPread(fd int, p []byte) (int, error) {
	return result(unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0))
}

// RawClose closes a pipe.
func RawClose(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// RawSend writes data to a non-blocking socket, and control messages with its first byte.
func RawSend(fd int, p, control []byte) (int, error) {
	v, m := message(p, control)
	m.Iov = &v
	return result(unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_NOSIGNAL))
}

// RawReceive receives data and control messages from a non-blocking socket. size is that of the control messages.
func RawReceive(fd int, p, control []byte) (n, size int, err error) {
	v, m := message(p, control)
	m.Iov = &v
	n, err = result(unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_CMSG_CLOEXEC))
	return n, int(m.Controllen), err
}

func message(p, control []byte) (v unix.Iovec, m unix.Msghdr) {
	v.Base = unsafe.SliceData(p)
	v.SetLen(len(p))
	m.Control = unsafe.SliceData(control)
	m.SetIovlen(1)
	m.SetControllen(len(control))
	return v, m
}

func result(n, _ uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}
