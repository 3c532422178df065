package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

// within bounds the wait for things that happen at once, on slow and shared machines.
const within = 30 * time.Second

// raw is a peer that ignores the protocol's rules: it sends what a test tells it to, and accepts everything.
type raw struct {
	t      *testing.T
	conn   net.Conn
	frames chan Frame // received frames, including the greeting; closed at the end
}

// newRaw returns a side of a connection whose peer is raw. The channel receives the result of Serve.
func newRaw(t *testing.T, role Role, handler func(*Stream, []byte)) (*Conn, *raw, <-chan error) {
	t.Helper()
	hostEnd, guestEnd := net.Pipe()
	c := NewConn(hostEnd, role, handler)
	r := &raw{t: t, conn: guestEnd, frames: make(chan Frame, 1<<16)}
	served := make(chan error, 1)
	go func() {
		defer close(r.frames)
		for d := NewDecoder(guestEnd, MaxFromHost); ; {
			f, err := d.Next()
			if err != nil {
				return
			}
			f.Payload = bytes.Clone(f.Payload)
			r.frames <- f
		}
	}()
	go func() { served <- c.Serve() }()
	t.Cleanup(func() {
		c.Close()
		_ = guestEnd.Close()
	})
	return c, r, served
}

// send sends a frame. It ignores errors, since the other side may have closed the connection.
func (r *raw) send(stream uint32, t Type, payload ...byte) {
	_, _ = r.conn.Write(append(appendHeader(nil, stream, t, len(payload)), payload...))
}

// header sends only a frame's header.
func (r *raw) header(stream uint32, t Type, size int) {
	_, _ = r.conn.Write(appendHeader(nil, stream, t, size))
}

func (r *raw) greet() { r.send(0, Hello, Version) }

// next returns the next frame of a type, and skips others.
func (r *raw) next(t Type) Frame {
	r.t.Helper()
	timeout := time.After(within)
	for {
		select {
		case f, ok := <-r.frames:
			if !ok {
				r.t.Fatalf("the connection ended before a frame of type %d", t)
			}
			if f.Type == t {
				return f
			}
		case <-timeout:
			r.t.Fatalf("no frame of type %d came within %v", t, within)
		}
	}
}

// ended waits for the end of a connection and returns its error.
func ended(t *testing.T, served <-chan error) error {
	t.Helper()
	select {
	case err := <-served:
		return err
	case <-time.After(within):
		t.Fatalf("the connection did not end within %v", within)
		return nil
	}
}

func wantProtocolError(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrProtocol) {
		t.Errorf("the connection ended with %v, want a protocol error", err)
	}
}

// eventually waits until cond returns true.
func eventually(t *testing.T, condition string, cond func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", within, condition)
		case <-tick.C:
		}
	}
}

// noMoreGoroutines checks that f leaves no goroutine behind.
func noMoreGoroutines(t *testing.T, f func()) {
	t.Helper()
	before := runtime.NumGoroutine()
	f()
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

// duplex is a pair of kernel pipes, which buffer some bytes like real connections.
type duplex struct{ in, out *os.File }

func (d duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d duplex) Write(p []byte) (int, error) { return d.out.Write(p) }
func (d duplex) Close() error                { return errors.Join(d.in.Close(), d.out.Close()) }

// newPair returns a host and a guest that are connected. handler is the guest's.
func newPair(t *testing.T, handler func(*Stream, []byte)) (host, guest *Conn) {
	t.Helper()
	toGuest, fromHost, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	toHost, fromGuest, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	host = NewConn(duplex{toHost, fromHost}, Host, nil)
	guest = NewConn(duplex{toGuest, fromGuest}, Guest, handler)
	served := make(chan error, 2)
	for _, c := range []*Conn{host, guest} {
		go func() { served <- c.Serve() }()
	}
	t.Cleanup(func() {
		host.Close()
		guest.Close()
		_, _ = ended(t, served), ended(t, served)
	})
	return host, guest
}

func open(t *testing.T, c *Conn, request string) *Stream {
	t.Helper()
	s, err := c.Open([]byte(request))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// collect receives n bytes of data, and reports them as consumed.
func collect(s *Stream, n int) ([]byte, error) {
	var got []byte
	for len(got) < n {
		ev, err := s.Receive()
		if err != nil {
			return got, err
		}
		if ev.Type == Data {
			got = append(got, ev.Payload...)
			s.Consume(len(ev.Payload))
		}
	}
	return got, nil
}

// numbered returns n bytes in which a missing, repeated or misplaced byte is detected.
func numbered(n int) []byte {
	p := make([]byte, 0, n+4)
	for i := uint32(0); len(p) < n; i++ {
		p = binary.BigEndian.AppendUint32(p, i)
	}
	return p[:n]
}

var _ io.ReadWriteCloser = duplex{}
