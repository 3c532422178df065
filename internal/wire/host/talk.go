package host

import (
	"bufio"
	"context"
	"net/netip"

	"github.com/fumehood/fumehood/internal/wire"
)

// Talk is an exchange of datagrams with a UDP port in a container. One goroutine may receive while another sends.
type Talk struct {
	conn     *Conn
	received *bufio.Reader
	packed   []byte // buffer for the encoded datagram
}

// Talk makes the guest exchange datagrams with a UDP port, at the first address at which a program receives them. If
// there is no such address, the error is an ErrUnavailable.
func (g *Guest) Talk(ctx context.Context, addresses []netip.Addr, port uint16) (*Talk, error) {
	conn, err := g.connect(ctx, wire.Request{Talk: (*wire.Talk)(dialOf(addresses, port))})
	if err != nil {
		return nil, err
	}
	return &Talk{conn: conn, received: bufio.NewReader(conn)}, nil
}

// Receive returns the program's next datagram. It may be larger than any that UDP carries.
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
