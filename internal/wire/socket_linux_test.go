package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/test/tier"
)

func socketPair(t *testing.T) (a, b *Socket) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var both [2]*Socket
	for i, fd := range fds {
		s, err := NewSocket(fd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		both[i] = s
	}
	return both[0], both[1]
}

// Both sides send more than a socket can buffer at once, in pieces of all sizes, and neither reads steadily.
func TestSocket_bothDirections(t *testing.T) {
	a, b := socketPair(t)
	results := make(chan error, 4)
	for i, way := range []struct{ from, to *Socket }{{a, b}, {b, a}} {
		text := make([]byte, 8<<20)
		rnd := rand.NewChaCha8([32]byte{byte(i)})
		_, _ = rnd.Read(text) // never fails
		go func() {
			var err error
			for rest := text; err == nil && len(rest) > 0; {
				n := min(len(rest), 1+int(rnd.Uint64()%300_000))
				_, err = way.from.Write(rest[:n])
				rest = rest[n:]
			}
			results <- err
		}()
		go func() {
			got := make([]byte, len(text))
			_, err := io.ReadFull(way.to, got)
			if err == nil && !bytes.Equal(got, text) {
				err = errors.New("received different bytes")
			}
			results <- err
		}()
	}
	for range 4 {
		select {
		case err := <-results:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("timeout")
		}
	}
}

func TestForgets(t *testing.T) {
	if forgets() {
		t.Error("forgets() is true on Linux")
	}
}

// The other side answers each message, so each side waits for every message.
func TestSocket_eachMessageWakes(t *testing.T) {
	a, b := socketPair(t)
	go func() { _, _ = io.Copy(b, b) }() // until the end of the test
	for i := range tier.Pick(t, 5_000, 20_000, 20_000) {
		if _, err := a.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		var got [1]byte
		if err := a.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(a, got[:]); err != nil || got[0] != byte(i) {
			t.Fatalf("message %d: got %d, %v", i, got[0], err)
		}
	}
}

func TestSocket_unblocksOnEnd(t *testing.T) {
	full := func(s *Socket) error {
		_, err := s.Write(make([]byte, 8<<20))
		return err
	}
	read := func(s *Socket) error {
		_, err := s.Read(make([]byte, 10))
		return err
	}
	for name, c := range map[string]struct {
		wait func(s *Socket) error
		end  func(s, peer *Socket) error
		want error
	}{
		"reader, peer closes":   {read, func(_, peer *Socket) error { return peer.Close() }, io.EOF},
		"reader, own close":     {read, func(s, _ *Socket) error { return s.Close() }, os.ErrClosed},
		"reader, deadline":      {read, func(s, _ *Socket) error { return s.SetDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"writer, peer closes":   {full, func(_, peer *Socket) error { return peer.Close() }, unix.EPIPE},
		"writer, own close":     {full, func(s, _ *Socket) error { return s.Close() }, os.ErrClosed},
		"writer, deadline":      {full, func(s, _ *Socket) error { return s.SetDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"reader, closed before": {func(s *Socket) error { return errors.Join(s.Close(), read(s)) }, func(_, _ *Socket) error { return nil }, os.ErrClosed},
		"writer, closed before": {func(s *Socket) error { return errors.Join(s.Close(), full(s)) }, func(_, _ *Socket) error { return nil }, os.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			s, peer := socketPair(t)
			ended := make(chan error, 1)
			go func() { ended <- c.wait(s) }()
			if err := c.end(s, peer); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			case <-time.After(time.Minute):
				t.Error("still waiting")
			}
		})
	}
}

// A deadline that is set before a write waits ends its wait. Only then does a socket need a third descriptor.
func TestSocket_writeDeadline(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := open()
	s, _ := socketPair(t)
	if n := open() - before; n != 4 {
		t.Errorf("two sockets take %d descriptors, not 4", n)
	}
	if err := s.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(make([]byte, 8<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a deadline", err)
	}
	if n := open() - before; n != 5 {
		t.Errorf("after a write that waited they take %d, not 5", n)
	}
}
