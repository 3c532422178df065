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

	"github.com/fumehood/fumehood/internal/tier"
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

// More than a socket holds goes both ways at once, in pieces of all sizes, between sides that each pause now and then.
func TestWhatIsWrittenToASocketIsRead(t *testing.T) {
	a, b := socketPair(t)
	results := make(chan error, 4)
	for i, way := range []struct{ from, to *Socket }{{a, b}, {b, a}} {
		text := make([]byte, 8<<20)
		rnd := rand.NewChaCha8([32]byte{byte(i)})
		_, _ = rnd.Read(text) // it never fails
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
				err = errors.New("other bytes came")
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
			t.Fatal("it hangs")
		}
	}
}

func TestForgets(t *testing.T) {
	if forgets() {
		t.Error("Linux is taken for a kernel that has to be asked before each wait")
	}
}

// Each message is answered by the other side, so that each side waits for every one.
func TestASocketIsWokenByEachMessage(t *testing.T) {
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

func TestWhoWaitsForASocketIsToldOfItsEnd(t *testing.T) {
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
		"a reader, of the peer's":        {read, func(_, peer *Socket) error { return peer.Close() }, io.EOF},
		"a reader, of its own":           {read, func(s, _ *Socket) error { return s.Close() }, os.ErrClosed},
		"a reader, of its deadline":      {read, func(s, _ *Socket) error { return s.SetDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"a writer, of the peer's":        {full, func(_, peer *Socket) error { return peer.Close() }, unix.EPIPE},
		"a writer, of its own":           {full, func(s, _ *Socket) error { return s.Close() }, os.ErrClosed},
		"a writer, of its deadline":      {full, func(s, _ *Socket) error { return s.SetDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"a reader that is not there yet": {func(s *Socket) error { return errors.Join(s.Close(), read(s)) }, func(_, _ *Socket) error { return nil }, os.ErrClosed},
		"a writer that is not there yet": {func(s *Socket) error { return errors.Join(s.Close(), full(s)) }, func(_, _ *Socket) error { return nil }, os.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			s, peer := socketPair(t)
			told := make(chan error, 1)
			go func() { told <- c.wait(s) }()
			if err := c.end(s, peer); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-told:
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			case <-time.After(time.Minute):
				t.Error("it waits on")
			}
		})
	}
}
