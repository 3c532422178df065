//go:build amd64 || arm64

package native

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// newPidfd returns a pidfd for awaitEnd.
func newPidfd(fd int) *os.File {
	_ = unix.SetNonblock(fd, true)            // so that Go's poller takes it; otherwise awaitEnd does not wait
	return os.NewFile(uintptr(fd), "sandbox") //nolint:gosec // since Linux 5.4 it is not negative
}

// awaitEnd waits until the process of a pidfd of newPidfd has ended, which must stay open until then.
func awaitEnd(pidfd *os.File) {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { // called again when the poller reports the end
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor has 31 bits
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// leave closes the pidfd of a first process that goes on. If this process has started it, it waits for the end by the pidfd,
// which stays open until then.
func (p *process) leave() {
	if p.ended == nil {
		_ = p.pidfd.Close() // nothing was written; there may be none
		return
	}
	go func() {
		<-p.ended
		_ = p.pidfd.Close() // as above
	}()
}
