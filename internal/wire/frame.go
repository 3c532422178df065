// Package wire is the protocol between the host and a guest. One connection carries many streams, each with its own
// flow control. The host does not trust the guest. Everything that a guest sends is bounded and checked, and can at
// worst end the connection.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Version is the protocol's version. Host and guest must have the same version. The host delivers the guest that was
// built together with it.
const Version = 6

// headerSize is the size of a frame's header: the stream's number (4 bytes, big-endian), the type (1 byte) and the
// payload's length (3 bytes, big-endian). The payload follows.
const headerSize = 8

// Type is the type of a frame.
type Type uint8

// The types of frames. A side that receives another type ends the connection.
const (
	Hello   Type = 1 // the first frame in each direction, on stream 0: the greeting, one byte of version
	Open    Type = 2 // the stream's first frame: a request
	Message Type = 3 // a message about the stream
	Data    Type = 4 // one byte of channel, then bytes; uses credit
	End     Type = 5 // one byte of channel: no more data follows on it
	Credit  Type = 6 // 4 bytes: the number of additional bytes of data that may be sent
	Close   Type = 7 // the stream's last frame in this direction
	Ping    Type = 8 // on stream 0; answered by a Pong with the same payload
	Pong    Type = 9
	// Share is one byte of channel. The host sends it with a file descriptor of memory for the data on that channel, and
	// the guest when it has mapped the memory. See Stream.Share.
	Share Type = 10
	// Shared is one byte of channel, then 4 bytes: the number of bytes of data in shared memory; uses credit.
	Shared Type = 11
)

const (
	// MaxData is the most bytes of payload in a frame of data, including the channel's byte. Together with its header
	// such a frame fills a writer's buffer, so it is sent in one write.
	MaxData = writeStep - headerSize
	// MaxFromGuest is the largest payload of a frame that the host accepts.
	MaxFromGuest = 128 << 10
	// MaxFromHost is the largest payload of a frame that the guest accepts. A request may contain 2 MiB of arguments
	// and as much environment.
	MaxFromHost = 8 << 20
)

// ErrProtocol means that the peer broke the protocol. The connection cannot be used any more.
var ErrProtocol = errors.New("protocol error")

func protocolError(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, a...))
}

// full pools the payloads of full frames of data. Otherwise garbage collection takes as much time as the transfer
// itself.
var full = sync.Pool{New: func() any { return new([MaxData]byte) }}

// Frame is one frame. Its payload is valid until the next frame is read. The payload of a Data frame may be kept.
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

// NewDecoder returns a decoder that reads frames with a payload of at most limit bytes from r.
func NewDecoder(r io.Reader, limit int) *Decoder {
	// The buffer is small, so that most of a large frame bypasses it.
	return &Decoder{r: bufio.NewReaderSize(r, 4<<10), max: limit}
}

// Next reads a frame. It returns io.EOF if the input ends between two frames.
func (d *Decoder) Next() (Frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(d.r, head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Stream: binary.BigEndian.Uint32(head[:4]), Type: Type(head[4])}
	size := int(head[5])<<16 | int(head[6])<<8 | int(head[7])
	if f.Type < Hello || f.Type > Shared {
		return Frame{}, protocolError("frame of unknown type %d", f.Type)
	}
	if size > d.max {
		return Frame{}, protocolError("frame of %d bytes, at most %d are allowed", size, d.max)
	}
	if f.Type == Data && size <= MaxData { // a larger frame is rejected after it is read
		if size == MaxData {
			f.Payload = full.Get().(*[MaxData]byte)[:]
		} else {
			f.Payload = make([]byte, size)
		}
		if _, err := io.ReadFull(d.r, f.Payload); err != nil {
			return Frame{}, cutOffError(err)
		}
		return f, nil
	}
	if err := d.fill(size); err != nil {
		return Frame{}, err
	}
	f.Payload = d.buf[:size]
	return f, nil
}

// fill reads size bytes into the buffer. The buffer grows with the bytes received, not with the stated size.
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
			return cutOffError(err)
		}
	}
	return nil
}

// cutOffError returns the error for a frame that is cut off.
func cutOffError(err error) error {
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
