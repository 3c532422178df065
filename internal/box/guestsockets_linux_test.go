package box

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
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
type noRelay struct{ Unit }

// Without relays, no guest exists if no process listens at its socket.
func TestGuests_find_noRelay(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	m := NewGuests(GuestConfig{
		Unit: noRelay{&fakeUnit{}}, Key: []byte("key"), Sockets: func() string { return folder }, Log: slog.New(slog.DiscardHandler),
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

// The process that makes a socket rejects connections until the guest has taken it.
func TestGuests_find_rejected(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	m := NewGuests(GuestConfig{
		Unit: noRelay{&fakeUnit{}}, Key: []byte("key"), Sockets: func() string { return folder }, Log: slog.New(slog.DiscardHandler),
	})
	name, secret := m.residence("user")
	l, err := bind(folder, name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for n := range 3 {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			if n < 2 {
				_ = c.Close()
			} else if err := wire.Prove(c, wire.Guest, secret); err == nil {
				_ = wire.NewConn(c, wire.Guest, (&exec{swept: wire.Swept{User: 7, Began: 1}}).answer).Serve() // until the end of the test
			}
		}
	}()
	g, err := m.find(t.Context(), "user")
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
}
