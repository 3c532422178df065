//go:build unix && (!linux || (!amd64 && !arm64))

package local

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
)

// startTTY starts the command as the leader of a session, with a terminal for all three streams.
func (p *process) startTTY(rows, cols uint16) error {
	opened, child, err := pty.Open()
	if err != nil {
		return err
	}
	defer child.Close()
	parent, err := pollable(opened)
	if err != nil {
		return err
	}
	if err := setSize(parent, rows, cols); err != nil {
		parent.Close()
		return err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = child, child, child
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		parent.Close()
		return err
	}
	p.stdin, p.readers = parent, []*os.File{parent}
	p.listen()
	return nil
}

// pollable returns the terminal as a file with deadlines, which a file of package pty does not have. It closes f.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func setSize(f *os.File, rows, cols uint16) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sizeErr error
	err = raw.Control(func(fd uintptr) {
		sizeErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	return errors.Join(err, sizeErr)
}

// Resize sets the terminal's size.
func (p *process) Resize(_ context.Context, rows, cols uint16) error {
	if !p.tty {
		return classError(fumehood.ErrConfig, "the command has no terminal")
	}
	return setSize(p.stdin, rows, cols)
}
