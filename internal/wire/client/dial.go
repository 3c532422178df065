package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

// Conn is the bytes of a connection with a port in a container. One goroutine may read and another write.
type Conn struct {
	s    *wire.Stream
	rest []byte     // what is not read yet of
	last wire.Event // the last piece
	end  error      // set when nothing more can be read
}

// Dial has the guest connect to a TCP port, at the first of the addresses that takes it. That none does is an
// ErrUnavailable.
func (g *Guest) Dial(ctx context.Context, addresses []netip.Addr, port uint16) (*Conn, error) {
	return g.connect(ctx, wire.Request{Dial: dialOf(addresses, port)})
}

// dialOf asks for the port at one of the addresses.
func dialOf(addresses []netip.Addr, port uint16) *wire.Dial {
	d := &wire.Dial{Port: port}
	for _, a := range addresses {
		d.Addresses = append(d.Addresses, a.String())
	}
	return d
}

// connect opens a stream whose guest says whether it has connected it.
func (g *Guest) connect(ctx context.Context, request wire.Request) (*Conn, error) {
	s, err := g.request(request)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.Close)
	var dialed wire.Dialed
	ev, err := s.Receive()
	switch {
	case !stop():
		err = &fumehood.Error{Class: fumehood.ErrCancelled, Err: context.Cause(ctx)}
	case err != nil && !errors.Is(err, wire.ErrProtocol):
		err = g.lost(err)
	case err != nil:
		err = broken("%w", err)
	case ev.Type != wire.Message || json.Unmarshal(ev.Payload, &dialed) != nil:
		err = broken("what should tell of a connection does not")
	case dialed.Failed != "":
		err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: fmt.Errorf("the guest says: %.400s", dialed.Failed)}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return &Conn{s: s}, nil
}

// Read reads what the program has written.
func (c *Conn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.end != nil {
			return 0, c.end
		}
		c.last.Recycle()
		ev, err := c.s.Receive()
		c.last = ev
		switch {
		case errors.Is(err, io.EOF): // closed without an end of the data
			c.end = io.ErrUnexpectedEOF
		case err != nil:
			c.end = err
		case ev.Type == wire.Data && ev.Channel == wire.Stdout:
			c.rest = ev.Payload
		case ev.Type == wire.End && ev.Channel == wire.Stdout:
			c.end = io.EOF
		default:
			c.end = broken("something else than the bytes of a connection")
			c.s.Close()
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	c.s.Consumed(n)
	return n, nil
}

// Write writes to the program.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.s.Send(wire.Stdin, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite tells the program that nothing more comes.
func (c *Conn) CloseWrite() error { return c.s.SendEnd(wire.Stdin) }

// Close ends the connection in both directions.
func (c *Conn) Close() error {
	c.s.Close()
	return nil
}
