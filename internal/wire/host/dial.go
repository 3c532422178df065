package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

// Conn is a connection to a port in a container. One goroutine may read while another writes.
type Conn struct{ wire.Content }

// Dial makes the guest connect to a TCP port, at the first address that accepts. If none does, the error is an
// ErrUnavailable.
func (g *Guest) Dial(ctx context.Context, addresses []netip.Addr, port uint16) (*Conn, error) {
	return g.connect(ctx, wire.Request{Dial: dialOf(addresses, port)})
}

// dialOf returns the request for a port at one of the addresses.
func dialOf(addresses []netip.Addr, port uint16) *wire.Dial {
	d := &wire.Dial{Port: port}
	for _, a := range addresses {
		d.Addresses = append(d.Addresses, a.String())
	}
	return d
}

// connect opens a stream, and waits for the guest to report whether it has connected.
func (g *Guest) connect(ctx context.Context, request wire.Request) (*Conn, error) {
	var connected wire.Connected
	s, err := g.roundTrip(ctx, request, &connected)
	if err != nil {
		return nil, err
	}
	if connected.Failed != "" {
		s.Close()
		return nil, &fumehood.Error{
			Class: fumehood.ErrUnavailable, Err: fmt.Errorf("guest reports: %.400s", connected.Failed),
			Hint: "check that a program in the sandbox listens on the port: it may not have started yet",
		}
	}
	return &Conn{wire.Content{Stream: s, Channel: wire.Stdout, Wrong: func(_ wire.Event, err error) error {
		switch {
		case errors.Is(err, io.EOF): // closed without an End frame
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		s.Close()
		return protocolError("unexpected message on a connection")
	}}}, nil
}

// Write writes to the program.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.Stream.Send(wire.Stdin, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite tells the program that no more data follows.
func (c *Conn) CloseWrite() error { return c.Stream.SendEnd(wire.Stdin) }

// Close closes the connection in both directions.
func (c *Conn) Close() error {
	c.Stream.Close()
	return nil
}
