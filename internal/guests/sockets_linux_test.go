package guests

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A socket whose backlog is full is one on which a guest listens.
func TestDial_fullBacklog(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: file}), syscall.Listen(fd, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	for err == nil {
		var c net.Conn
		if c, err = net.Dial("unix", file); err == nil {
			defer c.Close()
		}
	}
	if !errors.Is(err, syscall.EAGAIN) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := dial(ctx, file); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it is full: %v", err)
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := dial(t.Context(), file)
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	accepted, _, err := syscall.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(accepted)
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

// noRelay is a Host without relays.
type noRelay struct{ Host }

// Without relays, a socket on which nobody listens means that there is no guest.
func TestManager_find_noRelay(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	m := New(Config{
		Host: noRelay{&host{}}, Key: []byte("key"), Sockets: func() string { return folder }, Log: slog.New(slog.DiscardHandler),
	})
	if _, err := m.find(t.Context(), "user"); !errors.Is(err, errNobody) {
		t.Errorf("no socket: %v", err)
	}
	name, _ := m.residence("user")
	l, err := bind(folder, name)
	if err == nil {
		err = l.Close() // the file stays
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.find(t.Context(), "user"); !errors.Is(err, errNobody) {
		t.Errorf("socket of a dead guest: %v", err)
	}
}
