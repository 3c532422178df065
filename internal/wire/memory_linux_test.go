package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
)

// connectedStreams returns a stream's two ends. between may replace the connection of the guest.
func connectedStreams(t *testing.T, between func(host, guest *Socket) (io.ReadWriteCloser, io.ReadWriteCloser)) (host, guest *Stream) {
	t.Helper()
	a, b := socketPair(t)
	var x, y io.ReadWriteCloser = a, b
	if between != nil {
		x, y = between(a, b)
	}
	opened := make(chan *Stream, 1)
	hostEnd, guestEnd := NewConn(x, Host, nil), NewConn(y, Guest, func(s *Stream, _ []byte) { opened <- s })
	for _, c := range []*Conn{hostEnd, guestEnd} {
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = c.Serve()
		}()
		t.Cleanup(func() {
			c.Close()
			<-served
		})
	}
	host, err := hostEnd.Open([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case guest = <-opened:
	case <-time.After(within):
		t.Fatal("no stream")
	}
	t.Cleanup(host.Close)
	t.Cleanup(guest.Close)
	return host, guest
}

// randomBytes returns n bytes that differ everywhere.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}

// moved sends what r reads from one end to the other. It returns the received bytes, and whether they used memory.
func moved(t *testing.T, from, to *Stream, channel byte, r io.Reader, size int64) (got []byte, shared bool) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		n, readErr, err := from.SendFrom(channel, r, size)
		if size >= 0 && n != size {
			err = errors.Join(err, io.ErrShortWrite)
		}
		sent <- errors.Join(readErr, err, from.SendEnd(channel))
	}()
	content := &Content{Stream: to, Channel: channel, Wrong: func(_ Event, err error) error { return err }}
	if to.c.role == Host {
		to.Share(channel)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 300_000)
	for {
		n, err := content.Read(buf[:1+rnd.IntN(len(buf))])
		got = append(got, buf[:n]...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	return got, from.outlet(channel) != nil
}

func TestStream_Share(t *testing.T) {
	want := randomBytes(5*memorySize + 12345)
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() io.Reader{
		"memory": func() io.Reader { return bytes.NewReader(want) },
		"other":  func() io.Reader { return iotest.HalfReader(bytes.NewReader(want)) },
		"file": func() io.Reader {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return f
		},
	} {
		for _, size := range []int64{-1, int64(len(want))} {
			t.Run(name, func(t *testing.T) {
				host, guest := connectedStreams(t, nil)
				if got, shared := moved(t, host, guest, Stdin, open(), size); !shared || !bytes.Equal(got, want) {
					t.Errorf("to the guest: shared %v, %d bytes", shared, len(got))
				}
				host, guest = connectedStreams(t, nil)
				if got, shared := moved(t, guest, host, Stdout, open(), size); !shared || !bytes.Equal(got, want) {
					t.Errorf("from the guest: shared %v, %d bytes", shared, len(got))
				}
			})
		}
	}
}

// Descriptors cannot be passed over other connections, and a relay loses them.
func TestStream_Share_unavailable(t *testing.T) {
	want := randomBytes(2 * ShareFrom)
	for name, between := range map[string]func(host, guest *Socket) (io.ReadWriteCloser, io.ReadWriteCloser){
		"no socket on the host": func(host, guest *Socket) (io.ReadWriteCloser, io.ReadWriteCloser) {
			return struct{ io.ReadWriteCloser }{host}, guest
		},
		"no socket in the container": func(host, guest *Socket) (io.ReadWriteCloser, io.ReadWriteCloser) {
			return host, struct{ io.ReadWriteCloser }{guest}
		},
		"relay": func(host, guest *Socket) (io.ReadWriteCloser, io.ReadWriteCloser) {
			c, d := socketPair(t)
			go func() { _, _ = io.Copy(d, guest) }() // until the end of the test
			go func() { _, _ = io.Copy(guest, d) }()
			return host, c
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, toGuest := range []bool{true, false} {
				host, guest := connectedStreams(t, between)
				from, to, channel := guest, host, Stdout
				if toGuest {
					from, to, channel = host, guest, Stdin
				}
				if got, shared := moved(t, from, to, channel, bytes.NewReader(want), -1); shared || !bytes.Equal(got, want) {
					t.Errorf("to the guest %v: shared %v, %d bytes", toGuest, shared, len(got))
				}
			}
		})
	}
}

// A stream may be closed while a call uses its memory.
func TestStream_Share_closed(t *testing.T) {
	host, guest := connectedStreams(t, nil)
	reading, proceed := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, &Content{Stream: guest, Channel: Stdin, Wrong: func(_ Event, err error) error { return err }})
	}()
	eventually(t, "shared memory", func() bool {
		host.Share(Stdin)
		return host.outlet(Stdin) != nil
	})
	sent := make(chan error, 1)
	go func() {
		_, _, err := host.fill(host.outlet(Stdin), Stdin, 1000, func(p []byte) (int, error) {
			close(reading)
			<-proceed
			p[0] = 1 // would crash if it were unmapped
			return len(p), nil
		})
		sent <- err
	}()
	<-reading
	host.Close()
	close(proceed)
	if err := <-sent; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

// liar returns a host's connection and the socket of a guest that has sent its greeting.
func liar(t *testing.T) (host *Conn, guest *net.UnixConn, served <-chan error) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, err := NewSocket(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(pair[1]), "guest")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	host = NewConn(own, Host, nil)
	ended := make(chan error, 1)
	go func() { ended <- host.Serve() }()
	guest = conn.(*net.UnixConn)
	go func() { _, _ = io.Copy(io.Discard, guest) }() // until the end of the test
	_, _ = guest.Write(append(appendHeader(nil, 0, Hello, 1), Version))
	t.Cleanup(func() {
		host.Close()
		_ = guest.Close()
	})
	return host, guest, ended
}

func TestStream_Share_lyingGuest(t *testing.T) {
	share := func(channel byte) []byte { return appendShare(1, channel) }
	shared := func(channel byte, n int) []byte {
		return append(append(appendHeader(nil, 1, Shared, 5), channel), credit(n)...)
	}
	for name, c := range map[string]struct {
		offered byte // 0 for nothing, since Stdin is 0
		frames  [][]byte
	}{
		"unoffered":             {0, [][]byte{share(Stdout)}},
		"unoffered data":        {0, [][]byte{shared(Stdout, 1)}},
		"another channel":       {Stdout, [][]byte{share(Stderr)}},
		"the host's channel":    {Stdout, [][]byte{share(Stdin)}},
		"twice":                 {Stdout, [][]byte{share(Stdout), share(Stdout)}},
		"share without channel": {Stdout, [][]byte{appendHeader(nil, 1, Share, 0)}},
		"data before share":     {Stdout, [][]byte{shared(Stdout, 1)}},
		"data on another":       {Stdout, [][]byte{share(Stdout), shared(Stderr, 1)}},
		"data on the host's":    {Stdout, [][]byte{share(Stdout), shared(Stdin, 1)}},
		"no data":               {Stdout, [][]byte{share(Stdout), shared(Stdout, 0)}},
		"negative":              {Stdout, [][]byte{share(Stdout), shared(Stdout, -1)}},
		"beyond the end":        {Stdout, [][]byte{share(Stdout), shared(Stdout, memorySize+1)}},
		"around the end":        {Stdout, [][]byte{share(Stdout), shared(Stdout, memorySize-1), shared(Stdout, 2)}},
		"more than credit":      {Stdout, [][]byte{share(Stdout), shared(Stdout, memorySize), shared(Stdout, 1)}},
		"half a count":          {Stdout, [][]byte{share(Stdout), append(appendHeader(nil, 1, Shared, 3), Stdout, 0, 1)}},
		"after its close":       {Stdout, [][]byte{share(Stdout), appendHeader(nil, 1, Close, 0), shared(Stdout, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			host, guest, served := liar(t)
			s, err := host.Open([]byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if c.offered != 0 {
				s.Share(c.offered)
			}
			for _, f := range c.frames {
				_, _ = guest.Write(f) // the host may have closed the connection
			}
			select {
			case err := <-served:
				if !errors.Is(err, ErrProtocol) {
					t.Errorf("got %v", err)
				}
			case <-time.After(within):
				t.Error("the connection goes on")
			}
		})
	}
}

// Frames about memory may arrive while the host closes the stream.
func TestStream_Share_late(t *testing.T) {
	host, _, _ := liar(t)
	s, err := host.Open([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	s.Share(Stdout)
	s.Close()
	if err := host.takeShare(s, []byte{Stdout}); err != nil {
		t.Error(err)
	}
	if err := s.take(Frame{1, Shared, append([]byte{Stdout}, credit(1)...)}); err != nil {
		t.Error(err)
	}
}

// A host never gets a descriptor from a guest. If it kept one, a pipe would not end.
func TestSocket_Read_dropsFiles(t *testing.T) {
	host, guest, _ := liar(t)
	r, w := pipe(t)
	for n := 1; n <= 200; n += 199 { // one and many
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(w.Fd())
		}
		if _, _, err := guest.WriteMsgUnix(appendHeader(nil, 0, Pong, 0), unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	if err := r.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if err := host.Err(); err != nil {
		t.Errorf("the connection has ended: %v", err)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})
	return r, w
}

// Read keeps one descriptor, until the next arrives or the socket is closed.
func TestSocket_TakeFile(t *testing.T) {
	a, b := socketPair(t)
	b.AcceptFiles()
	read := func() {
		t.Helper()
		if _, err := b.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	ended := func(r *os.File) {
		t.Helper()
		if err := r.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the descriptor is still open: %v", err)
		}
	}
	send := func() *os.File {
		t.Helper()
		r, w := pipe(t)
		if err := errors.Join(a.WriteFile([]byte("x"), int(w.Fd())), w.Close()); err != nil {
			t.Fatal(err)
		}
		read()
		return r
	}
	first := send()
	second := send()
	ended(first)
	fd := b.TakeFile()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags != unix.FD_CLOEXEC { //nolint:gosec // a descriptor
		t.Errorf("descriptor %d has flags %d, %v", fd, flags, err)
	}
	if again := b.TakeFile(); again != -1 {
		t.Errorf("taken again: %d", again)
	}
	closeFile(fd)
	ended(second)

	r, w := pipe(t) // two at once
	if _, err := unix.SendmsgN(a.fd, []byte("x"), unix.UnixRights(int(w.Fd()), int(w.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	read()
	ended(r)
	if fd := b.TakeFile(); fd != -1 {
		t.Errorf("descriptor %d taken", fd)
	}

	last := send()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	ended(last)
}

// A guest ignores whatever is not memory.
func TestMapMemory_invalid(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r, _ := pipe(t)
	a, _ := socketPair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, fd := range map[string]int{"none": -1, "directory": int(dir.Fd()), "pipe": int(r.Fd()), "socket": a.fd, "device": int(null.Fd())} {
		if m, err := mapMemory(fd, true); err == nil {
			m.release()
			t.Errorf("%s: mapped", name)
		}
	}
}

// The guest cannot change the memory's size, and can write only to memory for its own data.
func TestNewMemory_seals(t *testing.T) {
	for _, readOnly := range []bool{true, false} {
		m, fd, err := newMemory(readOnly)
		if err != nil {
			t.Fatal(err)
		}
		defer m.release()
		defer closeFile(fd)
		for _, size := range []int64{0, memorySize / 2, 2 * memorySize} {
			if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
				t.Errorf("truncate to %d: %v", size, err)
			}
		}
		again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer closeFile(again)
		_, werr := unix.Pwrite(again, []byte{1}, 0)
		writable, merr := mapMemory(again, false)
		if merr == nil {
			writable.release()
		}
		if want := readOnly; errors.Is(werr, unix.EPERM) != want || errors.Is(merr, unix.EPERM) != want {
			t.Errorf("read-only %v: write: %v, map: %v", readOnly, werr, merr)
		}
		m.bytes[0] = 2 // the host can write
	}
}

// A new reader's buffer may hold anything, so only known readers get the memory itself.
func TestPlain(t *testing.T) {
	if plain(iotest.DataErrReader(bytes.NewReader(nil))) || !plain(bytes.NewReader(nil)) {
		t.Error("wrong readers get shared memory")
	}
}
