package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

const (
	// moveWithin bounds a whole Move. A guest connects within a few milliseconds.
	moveWithin = 10 * time.Second
	// proofWithin bounds the wait for a connection's proof.
	proofWithin = 5 * time.Second
	// lastWords is how long the first connection may outlive the second, since it brings the error output of a dying
	// guest.
	lastWords = time.Second
	// mostStrangers is how many connections may exist without a proof at once. Any process in the sandbox can connect.
	mostStrangers = 64
)

// Move makes the guest connect to the socket of l, which the guest finds at path, and sends all further requests
// there. It closes l. On an error, requests still go over the first connection. After a Move the guest outlives its
// first connection, which may be cut on the way, and ends with the second.
func (g *Guest) Move(ctx context.Context, l net.Listener, path string) error {
	conn, err := g.call(ctx, l, path, false)
	if err != nil {
		return err
	}
	return g.join(conn)
}

// Publish gives a resident guest the socket of l, which the guest finds at path. Meet then works on connections to that
// socket. It closes l; the guest keeps the socket open for as long as it lives.
func (g *Guest) Publish(ctx context.Context, l *net.UnixListener, path string) error {
	file, err := l.File()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer file.Close()
	conn, err := g.call(ctx, l, path, true)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(proofWithin)); err != nil {
		return err
	}
	if err := sendFile(conn, file); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return fmt.Errorf("the guest has not taken the socket: %w", err)
	}
	return nil
}

// call makes the guest connect to the socket of l, which the guest finds at path. It closes l.
func (g *Guest) call(ctx context.Context, l net.Listener, path string, listen bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	secret := make([]byte, wire.SecretSize)
	_, _ = rand.Read(secret) // never fails
	arrived := make(chan net.Conn)
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		await(ctx, l, secret, arrived)
	}()
	defer func() {
		cancel()
		l.Close()
		<-waiting
	}()
	var moved wire.Connected
	if err := g.ask(ctx, wire.Request{Move: &wire.Move{Path: []byte(path), Secret: secret, Listen: listen}}, &moved); err != nil {
		return nil, err
	}
	if moved.Failed != "" {
		return nil, fmt.Errorf("guest reports: %.200s", moved.Failed)
	}
	select {
	case conn := <-arrived:
		return conn, nil
	case <-ctx.Done(): // the guest reported a connection that has not arrived
		return nil, context.Cause(ctx)
	}
}

// join sends further requests over conn. When it ends, the first connection is closed too. join fails if the guest is
// lost already.
func (g *Guest) join(conn net.Conn) error {
	if err := g.first.Err(); err != nil {
		return errors.Join(lostError(err), conn.Close())
	}
	c := wire.NewConn(quiet(conn), wire.Host, nil)
	g.conn.Store(c)
	g.readers.Go(func() {
		_ = c.Serve() // Err returns why it ended
		end := time.AfterFunc(lastWords, g.first.Close)
		defer end.Stop()
		<-g.first.Done()
		close(g.over)
	})
	return nil
}

// Moved reports whether requests go over the connection made by Move. The guest is then lost when that connection ends,
// and not when the first one does.
func (g *Guest) Moved() bool { return g.conn.Load() != g.first }

// Cut reports whether the guest is lost because the connection has ended, and not because this side has closed it or
// given the guest up.
func (g *Guest) Cut() bool { return g.conn.Load().Cut() }

// Away reports whether the connection waits for another relay.
func (g *Guest) Away() bool { return g.first.Away() }

// giveUp ends the connections to a guest that does not answer.
func (g *Guest) giveUp() {
	g.first.Close()
	g.conn.Load().Close()
}

// ErrUnsent matches the error of a request that a lost guest has not received completely. So the guest has done nothing.
var ErrUnsent = errors.New("request not sent")

type unsent struct{ error }

func (u unsent) Unwrap() error      { return u.error }
func (unsent) Is(target error) bool { return target == ErrUnsent }

// await passes on the connection that proves knowledge of the secret, until ctx ends. It closes all others.
func await(ctx context.Context, l net.Listener, secret []byte, arrived chan<- net.Conn) {
	strangers := make(chan struct{}, mostStrangers)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed by Move
		}
		select {
		case strangers <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-strangers }()
			if proves(ctx, conn, secret) != nil {
				conn.Close()
				return
			}
			select {
			case arrived <- conn:
			case <-ctx.Done():
				conn.Close()
			}
		})
	}
}

// proves returns nil if the connection's peer knows the secret.
func proves(ctx context.Context, conn net.Conn, secret []byte) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return wire.ProveWithin(conn, wire.Host, secret, proofWithin)
}
