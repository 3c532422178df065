package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// fragile is a transport that fails after some bytes in either direction, in the middle of a read or a write.
type fragile struct {
	net.Conn
	left int
}

func (f *fragile) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p[:min(len(p), max(f.left, 0))])
	if f.left -= n; f.left <= 0 && err == nil {
		_ = f.Close()
		err = io.ErrClosedPipe
	}
	return n, err
}

// lastings returns both sides of a connection. connect gives them another transport.
func lastings(t *testing.T, window time.Duration) (host, guest *Lasting, connect func(wrap func(net.Conn) io.ReadWriteCloser)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var all Lastings
	host = NewLasting()
	connect = func(wrap func(net.Conn) io.ReadWriteCloser) {
		taken := make(chan *Lasting, 1)
		go func() {
			var fresh *Lasting
			if conn, err := l.Accept(); err == nil {
				fresh, _ = all.Take(wrap(conn)) // the host sees a failure too
			}
			taken <- fresh
		}()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		if err := host.Continue(wrap(conn), window); err != nil {
			conn.Close()
		}
		if fresh := <-taken; fresh != nil {
			guest = fresh
		}
	}
	connect(func(c net.Conn) io.ReadWriteCloser { return c })
	if guest == nil {
		t.Fatal("the guest has no connection")
	}
	t.Cleanup(func() { host.Close(); guest.Close() })
	return host, guest, connect
}

// Each byte arrives once and in order in both directions, wherever the transports end.
func TestLasting_cuts(t *testing.T) {
	t.Parallel()
	host, guest, connect := lastings(t, time.Minute)
	rnd := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, 6<<20)
	for i := range sent {
		sent[i] = byte(rnd.Uint32())
	}
	var cuts atomic.Int32
	go func() {
		_, _ = host.t.Write(bytes.Repeat([]byte{1}, 3)) // a broken head; the transport ends with it
		_ = host.t.Close()
		for host.Cut() {
			cuts.Add(1)
			connect(func(c net.Conn) io.ReadWriteCloser { return &fragile{c, 29 + rand.IntN(300<<10)} })
		}
	}()
	go func() { // echoes
		buf := make([]byte, 50<<10)
		for {
			n, err := guest.Read(buf)
			if err != nil {
				return
			}
			if _, err := guest.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(200<<10))
			if _, err := host.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(host, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatal("what came back differs from what was sent")
	}
	if n := cuts.Load(); n < 20 {
		t.Fatalf("only %d transports have ended", n)
	}
}

// A guest gives up a connection without a transport after the window, and not before.
func TestLasting_window(t *testing.T) {
	t.Parallel()
	host, guest, connect := lastings(t, 300*time.Millisecond)
	for range 3 { // together they take longer than the window
		host.detach()
		<-time.After(150 * time.Millisecond)
		connect(func(c net.Conn) io.ReadWriteCloser { return c })
	}
	if _, err := host.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(guest, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	host.detach()
	if _, err := guest.Read(make([]byte, 1)); !errors.Is(err, ErrNoTransport) {
		t.Fatalf("got %v", err)
	}
	connect(func(c net.Conn) io.ReadWriteCloser { return c })
	if _, err := host.Read(make([]byte, 1)); !errors.Is(err, errForgotten) {
		t.Fatalf("the host's error: %v", err)
	}
	if host.Cut() {
		t.Fatal("the host would try again")
	}
}

func TestLasting_Close(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"host", "guest"} {
		host, guest, _ := lastings(t, time.Hour)
		closes, other := host, guest
		if side == "guest" {
			closes, other = guest, host
		}
		if _, err := closes.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		closes.Close()
		if got, err := io.ReadAll(other); string(got) != "last" || err != nil {
			t.Errorf("%s closes: the other side reads %q, %v", side, got, err)
		}
		if _, err := closes.Write([]byte("x")); err == nil {
			t.Error("a write after Close succeeds")
		}
	}
}

// A side that sends more than it may, or acknowledges what was not sent, ends the connection.
func TestLasting_hostile(t *testing.T) {
	t.Parallel()
	head := func(length uint32, acked uint64) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, length), acked)
	}
	for name, bytes := range map[string][]byte{"long record": head(maxRecord+1, 0), "acknowledges too much": head(1, 1)} {
		host, guest, _ := lastings(t, time.Minute)
		if _, err := guest.t.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if _, err := host.Read(make([]byte, 10)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// A writer waits when too much is not acknowledged, also without a transport, and goes on when there is one.
func TestLasting_Write_waits(t *testing.T) {
	t.Parallel()
	host, guest, connect := lastings(t, time.Minute)
	host.detach()
	go func() { _, _ = host.Read(make([]byte, 1)) }() // acknowledgments are read too
	wrote := make(chan error, 1)
	go func() {
		_, err := host.Write(make([]byte, 3*mostUnacknowledged))
		wrote <- err
	}()
	select {
	case err := <-wrote:
		t.Fatalf("Write has not waited: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	go connect(func(c net.Conn) io.ReadWriteCloser { return c })
	if _, err := io.ReadFull(guest, make([]byte, 3*mostUnacknowledged)); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

func FuzzLasting_Read(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00ab"))
	f.Add(append(bytes.Repeat([]byte{0xff}, 4), make([]byte, 8)...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		own, peers := net.Pipe()
		go func() {
			_, _ = io.CopyN(io.Discard, peers, 29) // the host's number and count
			_, _ = peers.Write(append([]byte{continues, 8: 0}, sent...))
			peers.Close()
		}()
		l := NewLasting()
		if err := l.Continue(own, time.Second); err != nil {
			t.Fatal(err)
		}
		go func() {
			if l.Cut() {
				l.Fail(io.ErrUnexpectedEOF)
			}
		}()
		if got, err := io.ReadAll(l); len(got) > len(sent) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(sent), err)
		}
		l.Close()
	})
}
