package wire

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// newMemory creates memory for a stream, and returns it with its file descriptor. Nobody can change its size, so an
// access never fails. If readOnly is true, only this mapping can write to it.
func newMemory(readOnly bool) (_ *memory, fd int, err error) {
	fd, err = unix.MemfdCreate("fumehood", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.3
		fd, err = unix.MemfdCreate("fumehood", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, -1, os.NewSyscallError("memfd_create", err)
	}
	var m *memory
	if err = unix.Ftruncate(fd, memorySize); err == nil {
		m, err = mapAs(fd, unix.PROT_READ|unix.PROT_WRITE)
	}
	if err == nil {
		seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
		if readOnly {
			seals |= unix.F_SEAL_FUTURE_WRITE
		}
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			m.release()
		}
	}
	if err != nil {
		closeFile(fd)
		return nil, -1, err
	}
	return m, fd, nil
}

// mapMemory maps memory that the host has created.
func mapMemory(fd int, readOnly bool) (*memory, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Size != memorySize {
		return nil, protocolError("shared memory of %d bytes", st.Size)
	}
	if readOnly {
		return mapAs(fd, unix.PROT_READ)
	}
	return mapAs(fd, unix.PROT_READ|unix.PROT_WRITE)
}

// mapAs maps the first memorySize bytes of a file.
func mapAs(fd, protection int) (*memory, error) {
	b, err := unix.Mmap(fd, 0, memorySize, protection, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &memory{bytes: b, users: 1}, nil
}

func unmap(b []byte) { _ = unix.Munmap(b) } // cannot fail for a whole mapping

func closeFile(fd int) { _ = unix.Close(fd) } // nothing was written to it
