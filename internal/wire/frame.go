// Package wire is the protocol between the host and a guest: many streams over one connection, each with
// flow control of its own. The host does not trust the guest: whatever a guest sends is bounded, checked,
// and at worst ends the connection.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Version is the protocol's version. Host and guest must have the same: the host delivers the guest that
// was built with it.
const Version = 1

// A frame is a header of 8 bytes, the stream's number (4, big-endian), the type (1) and the payload's
// length (3, big-endian), and the payload.
const headerSize = 8

// Type is what a frame is about.
type Type uint8

// The types of frames. A side that gets another one ends the connection.
const (
	Hello   Type = 1 // on stream 0, first in each direction: a Greeting
	Open    Type = 2 // the stream's first frame: a request
	Message Type = 3 // about the stream
	Data    Type = 4 // one byte of channel, then bytes; takes credit
	End     Type = 5 // one byte of channel: no more data on it
	Credit  Type = 6 // 4 bytes: so many more bytes of data may be sent
	Close   Type = 7 // the stream's last frame in this direction
	Ping    Type = 8 // on stream 0; answered by a Pong with the same payload
	Pong    Type = 9
)

const (
	// MaxData is the most that one frame of data carries, its channel's byte included: with its header it
	// fills a writer's buffer, and goes out by one write.
	MaxData = writeStep - headerSize
	// MaxFromGuest is the largest frame that the host takes.
	MaxFromGuest = 128 << 10
	// MaxFromHost is the largest frame that the guest takes: a request may carry 2 MiB of arguments and
	// as much environment, base64-encoded.
	MaxFromHost = 8 << 20
)

// ErrProtocol says that the peer broke the protocol. The connection is useless then.
var ErrProtocol = errors.New("protocol error")

func protocolError(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, a...))
}

// full are the payloads of full frames of data, for use again: else what collects garbage takes as much time
// as the data.
var full = sync.Pool{New: func() any { return new([MaxData]byte) }}

// Frame is one frame. Its payload is valid until the next one is read, but for data, which may be kept.
type Frame struct {
	Stream  uint32
	Type    Type
	Payload []byte
}

// Decoder reads frames.
type Decoder struct {
	r   *bufio.Reader
	max int
	buf []byte
}

// NewDecoder reads frames of at most limit bytes of payload from r.
func NewDecoder(r io.Reader, limit int) *Decoder {
	// The buffer is small, so that most of a large frame is read past it.
	return &Decoder{r: bufio.NewReaderSize(r, 4<<10), max: limit}
}

// Next reads a frame. At the proper end of the stream it returns io.EOF.
func (d *Decoder) Next() (Frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(d.r, head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Stream: binary.BigEndian.Uint32(head[:4]), Type: Type(head[4])}
	size := int(head[5])<<16 | int(head[6])<<8 | int(head[7])
	if f.Type < Hello || f.Type > Pong {
		return Frame{}, protocolError("frame of unknown type %d", f.Type)
	}
	if size > d.max {
		return Frame{}, protocolError("frame of %d bytes, at most %d are allowed", size, d.max)
	}
	if f.Type == Data && size <= MaxData { // else it is refused as soon as it is read
		if size == MaxData {
			f.Payload = full.Get().(*[MaxData]byte)[:]
		} else {
			f.Payload = make([]byte, size)
		}
		if _, err := io.ReadFull(d.r, f.Payload); err != nil {
			return Frame{}, unexpected(err)
		}
		return f, nil
	}
	if err := d.fill(size); err != nil {
		return Frame{}, err
	}
	f.Payload = d.buf[:size]
	return f, nil
}

// fill reads size bytes into the buffer, which grows by what really comes.
func (d *Decoder) fill(size int) error {
	const step = 64 << 10
	for have := 0; have < size; {
		want := min(size, have+step)
		if want > len(d.buf) {
			grown := make([]byte, max(want, min(2*len(d.buf), d.max)))
			copy(grown, d.buf[:have])
			d.buf = grown
		}
		n, err := io.ReadFull(d.r, d.buf[have:want])
		have += n
		if err != nil {
			return unexpected(err)
		}
	}
	return nil
}

// unexpected is the error of a frame that ends early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendHeader appends a frame's header to b.
func appendHeader(b []byte, stream uint32, t Type, size int) []byte {
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, byte(t), byte(size>>16), byte(size>>8), byte(size))
}
