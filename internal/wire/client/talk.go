package client

import (
	"bufio"
	"context"
	"net/netip"

	"github.com/fumehood/fumehood/internal/wire"
)

// Talk is an exchange of datagrams with a UDP port in a container. One goroutine may receive and another send.
type Talk struct {
	conn     *Conn
	received *bufio.Reader
	packed   []byte // the datagram that was sent last, as it travels
}

// Talk has the guest exchange datagrams with a UDP port, at the first of the addresses at which a program takes them.
// That none does is an ErrUnavailable.
func (g *Guest) Talk(ctx context.Context, addresses []netip.Addr, port uint16) (*Talk, error) {
	conn, err := g.connect(ctx, wire.Request{Talk: (*wire.Talk)(dialOf(addresses, port))})
	if err != nil {
		return nil, err
	}
	return &Talk{conn: conn, received: bufio.NewReader(conn)}, nil
}

// Receive returns the next datagram that the program has sent. It may be larger than any that UDP carries.
func (t *Talk) Receive() ([]byte, error) { return wire.ReadDatagram(t.received) }

// Send sends a datagram to the program.
func (t *Talk) Send(datagram []byte) (err error) {
	if t.packed, err = wire.AppendDatagram(t.packed[:0], datagram); err != nil {
		return err
	}
	_, err = t.conn.Write(t.packed)
	return err
}

// Close ends the exchange in both directions.
func (t *Talk) Close() error { return t.conn.Close() }
