//go:build unix

package probe

import (
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func (host) Raise(sig int) error {
	s := syscall.Signal(sig)
	signal.Reset(s)
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		return err
	}
	<-time.After(time.Second) // the kernel may deliver the signal to another thread, a little later
	return nil
}

func (host) Ignore(sig int) { signal.Ignore(syscall.Signal(sig)) }

func (host) Catch(sig int) (<-chan struct{}, error) {
	in := make(chan os.Signal, 1)
	signal.Notify(in, syscall.Signal(sig))
	out := make(chan struct{}, 1)
	go func() { // ends with the program
		<-in
		out <- struct{}{}
	}()
	return out, nil
}

func (host) Terminal() (rows, cols int, ok bool) {
	ws, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(ws.Row), int(ws.Col), true
}

func (host) Special(kind, path string) error {
	switch kind {
	case "fifo":
		return unix.Mkfifo(path, 0o644)
	case "device":
		return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) //nolint:gosec // small
	case "socket":
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		return l.Close()
	}
	return errNoSuchThing(kind)
}
