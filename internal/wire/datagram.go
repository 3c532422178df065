package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// MaxDatagram is the largest datagram on a stream in bytes. UDP has none that is larger.
const MaxDatagram = 1<<16 - 1

// AppendDatagram appends an encoded datagram to b: its length (2 bytes, big-endian) and its bytes. A datagram may be
// empty.
func AppendDatagram(b, datagram []byte) ([]byte, error) {
	if len(datagram) > MaxDatagram {
		return b, fmt.Errorf("datagram too long: %d bytes", len(datagram))
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(datagram))) //nolint:gosec // checked above
	return append(b, datagram...), nil
}

// ReadDatagram reads the next datagram from the bytes of a stream. It returns io.EOF if they end between two
// datagrams.
func ReadDatagram(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	datagram := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(r, datagram); err != nil {
		return nil, cutOffError(err)
	}
	return datagram, nil
}
