package guestbin_test

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire/host"
)

// gVisor gives a guest standard output that does not block, if it is a socket.
func TestGuest_nonBlockingOutput(t *testing.T) {
	t.Parallel()
	var in, out [2]int
	if err := unix.Pipe2(in[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.Pipe2(out[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	program := guestProgram(t)
	attr := &syscall.ProcAttr{Files: []uintptr{uintptr(in[0]), uintptr(out[1]), 2}} //nolint:gosec // not negative
	pid, err := syscall.ForkExec(program, []string{program, "serve", "--no-cgroup"}, attr)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Close(in[0]), unix.Close(out[1])                                                                     // the guest's
	s := started{Guest: host.New(pipes{os.NewFile(uintptr(out[0]), "out"), os.NewFile(uintptr(in[1]), "in")}), t: t} //nolint:gosec // not negative
	t.Cleanup(func() {
		s.Close()
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			t.Error(err)
		}
	})
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(s.exec("head", "-c", "4000000", "/dev/zero")); got != 4000000 { // more than a pipe holds
		t.Errorf("got %d bytes", got)
	}
}
