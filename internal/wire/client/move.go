package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

const (
	// moveWithin bounds a whole Move: a guest connects within a few milliseconds.
	moveWithin = 10 * time.Second
	// proofWithin bounds the wait for a connection's proof.
	proofWithin = 5 * time.Second
	// lastWords is how long the first connection may outlive the second, since it brings what a guest that
	// dies complains of.
	lastWords = time.Second
	// mostStrangers is how many connections may be without a proof at once. Whatever runs in the sandbox
	// can connect.
	mostStrangers = 64
)

// Move has the guest connect to the socket that l listens on, which is path for the guest, and sends all
// later requests there. It closes l. On an error all stays as it was.
func (g *Guest) Move(ctx context.Context, l net.Listener, path string) error {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	secret := make([]byte, wire.SecretSize)
	_, _ = rand.Read(secret) // it never fails
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
	if err := g.ask(ctx, wire.Request{Move: &wire.Move{Path: []byte(path), Secret: secret}}, &moved); err != nil {
		return err
	}
	if moved.Failed != "" {
		return fmt.Errorf("the guest says: %.200s", moved.Failed)
	}
	select {
	case conn := <-arrived:
		g.join(conn)
		return nil
	case <-ctx.Done(): // it says that it is connected, and is not
		return context.Cause(ctx)
	}
}

// join sends later requests over a connection. Whichever of the two ends first, the other ends with it.
func (g *Guest) join(conn net.Conn) {
	var rw io.ReadWriteCloser = conn
	if unix, is := conn.(*net.UnixConn); is {
		rw = quiet(unix)
	}
	c := wire.NewConn(rw, wire.Host, nil)
	g.use(c)
	g.readers.Go(func() {
		select {
		case <-c.Done():
			end := time.NewTimer(lastWords)
			defer end.Stop()
			select {
			case <-end.C:
				g.first.Close()
			case <-g.first.Done():
			}
		case <-g.first.Done():
			c.Close()
		}
	})
}

// await hands over the connection that proves to know the secret, until ctx ends; all others are closed.
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

// proves returns nil for a connection whose peer knows the secret.
func proves(ctx context.Context, conn net.Conn, secret []byte) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return wire.ProveWithin(conn, wire.Host, secret, proofWithin)
}
