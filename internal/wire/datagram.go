package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// MaxDatagram is the most bytes that a datagram has on a stream; none of UDP has more.
const MaxDatagram = 1<<16 - 1

// AppendDatagram appends a datagram as it travels among the bytes of a stream: its length (2, big-endian) and
// its bytes, of which there may be none.
func AppendDatagram(b, datagram []byte) ([]byte, error) {
	if len(datagram) > MaxDatagram {
		return b, fmt.Errorf("a datagram of %d bytes is longer than any can be", len(datagram))
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(datagram))) //nolint:gosec // compared above
	return append(b, datagram...), nil
}

// ReadDatagram reads the next datagram from the bytes of a stream. At their proper end it returns io.EOF.
func ReadDatagram(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	datagram := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(r, datagram); err != nil {
		return nil, unexpected(err)
	}
	return datagram, nil
}
