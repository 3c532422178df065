package guest

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

const (
	// proveWithin bounds the wait for a connection's proof that it is a host's.
	proveWithin = 10 * time.Second
	// mostStrangers is how many connections without a proof may be there at once.
	mostStrangers = 64
	// backlog is how many connections may wait to be accepted.
	backlog = 128
)

// reside makes this guest a resident: it ends with its container alone, and serves every host that knows the
// secret. Its socket is an abstract one: so there is no file that a root file system must be writable for, or
// that who runs here could replace while the guest lives.
func (g *guest) reside(s *wire.Stream, req *wire.Reside) {
	var resides wire.Resides
	err := errors.New("a secret of the wrong length")
	if len(req.Secret) == wire.SecretSize {
		err = g.listenAt(req.Name, req.Secret)
	}
	if err != nil {
		resides.Failed, resides.Taken = err.Error(), errors.Is(err, unix.EADDRINUSE)
	}
	answer(s, resides)
}

func (g *guest) listenAt(name string, secret []byte) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	socket := os.NewFile(uintptr(fd), "residence")
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}); err == nil {
		err = unix.Listen(fd, backlog)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil && (g.resident || g.closing) {
		err = errors.New("it resides already, or is ending")
	}
	if err != nil {
		_ = socket.Close()
		return err
	}
	g.resident = true
	go g.receive(socket, secret)
	return nil
}

// receive takes connections for ever. One from what was started in here is closed unheard, and before it takes the
// place of one who has yet to prove that it is a host: else such could hold all places.
func (g *guest) receive(socket *os.File, secret []byte) {
	strangers := make(chan struct{}, mostStrangers)
	for {
		conn, err := accept(socket)
		if err != nil {
			nap(time.Second / 100) // too many open files, say
			continue
		}
		if startedHere(conn) {
			_ = conn.Close()
			continue
		}
		select {
		case strangers <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		go func() {
			err := wire.ProveWithin(conn, wire.Guest, secret, proveWithin)
			<-strangers
			if err != nil {
				_ = conn.Close()
				return
			}
			_ = wire.NewConn(conn, wire.Guest, g.handle).Serve() // its end is the host's, however it came
		}()
	}
}

// accept waits for a connection.
func accept(socket *os.File) (conn *os.File, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var aerr error
	err = raw.Read(func(s uintptr) bool {
		fd, _, aerr = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return !errors.Is(aerr, unix.EAGAIN)
	})
	if err = errors.Join(err, aerr); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "host"), nil
}

// startedHere reports whether a connection's other end is, or was, a process that descends from one of this
// container's. A relay, which the Engine starts, has its parent outside: one that has none here.
func startedHere(conn *os.File) bool {
	var peer *unix.Ucred
	if err := wire.Control(conn, func(fd int) (err error) {
		peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	}); err != nil {
		return true
	}
	if peer.Pid == 0 { // it is of no process that can be seen from here
		return false
	}
	f := statFields(int(peer.Pid))
	return f == nil || hasEnded(f) || f[4-3] != "0"
}

// resides reports whether this guest outlives its first connection.
func (g *guest) resides() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resident
}
