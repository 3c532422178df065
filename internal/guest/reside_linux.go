package guest

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

const (
	// proveWithin bounds the time in which a connection has to prove that it is a host's.
	proveWithin = 10 * time.Second
	// mostStrangers is how many connections without a proof may exist at once.
	mostStrangers = 64
	// backlog is how many connections may wait to be accepted.
	backlog = 128
)

// reside makes this guest resident. It then ends only with its container, or if no host has been connected for some
// time, and serves every host that knows the secret. It listens on an abstract socket. So the root file system need not be writable, and no process in the
// container can replace the socket while the guest lives.
func (g *guest) reside(s *wire.Stream, req *wire.Reside) {
	var resides wire.Resides
	err := errors.New("secret has the wrong length")
	if len(req.Secret) == wire.SecretSize {
		err = g.listenAt(req)
	}
	if err != nil {
		resides.Failed, resides.Taken = err.Error(), errors.Is(err, unix.EADDRINUSE)
	}
	answer(s, resides)
}

func (g *guest) listenAt(req *wire.Reside) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	socket := os.NewFile(uintptr(fd), "residence")
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + req.Name}); err == nil {
		err = unix.Listen(fd, backlog)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && (g.resident || g.closing) {
		err = errors.New("already resident, or shutting down")
	}
	if err != nil {
		_ = socket.Close()
		return err
	}
	g.resident, g.secret, g.linger = true, req.Secret, time.Duration(req.LingerMS)*time.Millisecond
	go g.receive(socket, req.Secret, g.serveRelay)
	return nil
}

// takeSocket makes this guest serve hosts also at a listening socket that the host sends over conn. It closes conn.
func (g *guest) takeSocket(conn *wire.Socket) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(moveWithin)); err != nil {
		return err
	}
	confirmation := make([]byte, 1)
	files, err := readWithFiles(conn, confirmation)
	var sockets []*os.File
	for _, fd := range files {
		if err == nil {
			err = unix.SetNonblock(fd, true) // so that accept blocks no thread
		}
		sockets = append(sockets, os.NewFile(uintptr(fd), "residence"))
	}
	g.mu.Lock()
	secret := g.secret
	g.mu.Unlock()
	if err == nil && (len(sockets) != 1 || secret == nil) {
		err = errors.New("not resident, or no socket received")
	}
	if err != nil {
		for _, s := range sockets {
			_ = s.Close()
		}
		return err
	}
	go g.receive(sockets[0], secret, func(conn *wire.Socket) { g.serveHost(conn) })
	_, err = conn.Write(confirmation)
	return err
}

// receive accepts connections, each for serve, and never returns. It closes a connection from a process started in the container
// before it counts as a stranger. Otherwise such processes could occupy all places of hosts that have yet to prove
// themselves.
func (g *guest) receive(socket *os.File, secret []byte, serve func(*wire.Socket)) {
	strangers := make(chan struct{}, mostStrangers)
	for {
		fd, err := accept(socket)
		if err != nil {
			nap(time.Second / 100) // for example, too many open files
			continue
		}
		if startedHere(fd) {
			_ = unix.Close(fd)
			continue
		}
		select {
		case strangers <- struct{}{}:
		default:
			_ = unix.Close(fd)
			continue
		}
		go func() {
			conn, err := authenticate(fd, secret, proveWithin)
			<-strangers
			if err != nil {
				return
			}
			serve(conn)
		}()
	}
}

// accept waits for a connection, and returns its file descriptor.
func accept(socket *os.File) (fd int, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return -1, err
	}
	var aerr error
	err = raw.Read(func(s uintptr) bool {
		fd, _, aerr = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return !errors.Is(aerr, unix.EAGAIN)
	})
	return fd, errors.Join(err, aerr)
}

// startedHere reports whether a connection's peer is or was a child of a process in this container. The Engine starts
// a relay from outside, so the relay's parent is not visible here. If in doubt, startedHere returns true.
func startedHere(conn int) bool {
	peer, err := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return true
	}
	if peer.Pid == 0 { // a process that is not visible from here
		return false
	}
	f := statFields(int(peer.Pid))
	return f == nil || hasEnded(f) || f[4-3] != "0"
}

// serveRelay serves a relay, which begins or continues a connection.
func (g *guest) serveRelay(relay *wire.Socket) {
	_ = relay.SetDeadline(time.Now().Add(proveWithin)) // an error shows later
	l, err := g.lasting.Take(relay)
	_ = relay.SetDeadline(time.Time{})
	if err == nil && l != nil {
		g.serveHost(l)
	}
}

// serveHost serves a connection other than the first one, and closes it. If this guest waits for the next host only for
// some time, all connections are of the same host. Then a new one shows that those before have ended, which may not have
// been noticed here.
func (g *guest) serveHost(conn io.ReadWriteCloser) {
	c := wire.NewConn(conn, wire.Guest, g.handle)
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		_ = conn.Close() // the host finds that nobody answers
		return
	}
	g.hosts++
	before := g.latest
	g.latest = c
	replaces := g.linger > 0
	g.mu.Unlock()
	if replaces {
		before.Close()
	}
	_ = c.Serve() // the host ends the connection, with or without an error
	g.part()
}

// part records that a host of serveHost has left.
func (g *guest) part() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hosts--; g.hosts == 0 {
		g.alone = time.Now()
		g.parted.Broadcast()
	}
}

// outlast waits after the end of the first connection until no host is connected. If this guest is resident, it waits
// until none has been for its linger. No host can connect afterwards. It returns when the last one has left.
func (g *guest) outlast() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alone = time.Now()
	for g.hosts > 0 || g.resident && g.linger == 0 || g.resident && time.Since(g.alone) < g.linger {
		if g.hosts == 0 && g.linger > 0 {
			time.AfterFunc(g.linger-time.Since(g.alone), g.parted.Broadcast)
		}
		g.parted.Wait()
	}
	g.closing = true
	return g.alone
}
