package workers

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/fumehood/fumehood"
)

// streamProtocol is the protocol of a stream to a port: frames of a length in four bytes, the highest first, and so many
// bytes. A frame without bytes ends its direction. A connection that ends before is broken.
const streamProtocol = "fumehood-stream"

const (
	frameHead = 4
	// maxFrame is the most bytes in a frame that is sent.
	maxFrame = 64 << 10
)

// Dial connects to a port of the service.
func (s *service) Dial(ctx context.Context, port int) (fumehood.Conn, error) {
	r := s.request(http.MethodGet, "/ports/"+strconv.Itoa(port), "")
	r.upgrade = streamProtocol
	life, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ctx limits the call only
	stop := context.AfterFunc(ctx, cancel)
	body, _, err := s.sb.w.open(life, r)
	if !stop() && err == nil {
		body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &conn{stream: body.(io.ReadWriteCloser), cancel: cancel}, nil //nolint:forcetypeassert // it is upgraded
}

// conn is a stream to a port.
type conn struct {
	stream io.ReadWriteCloser
	cancel context.CancelFunc

	left  uint32 // bytes of the frame that is being read
	ended bool

	mu    sync.Mutex // of writes
	frame []byte
}

func (c *conn) Read(p []byte) (int, error) {
	if c.left == 0 && !c.ended {
		var head [frameHead]byte
		if _, err := io.ReadFull(c.stream, head[:]); err != nil {
			return 0, breakError(err)
		}
		c.left = binary.BigEndian.Uint32(head[:])
		c.ended = c.left == 0
	}
	if c.ended {
		return 0, io.EOF
	}
	n, err := c.stream.Read(p[:min(len(p), int(c.left))])
	c.left -= uint32(n) //nolint:gosec // at most left
	if n > 0 {
		return n, nil
	}
	return n, breakError(err)
}

// breakError returns the error of a stream that has ended without its last frame.
func breakError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (c *conn) Write(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(p) {
		part := p[n:min(len(p), n+maxFrame)]
		c.frame = append(binary.BigEndian.AppendUint32(c.frame[:0], uint32(len(part))), part...) //nolint:gosec // at most maxFrame
		if _, err := c.stream.Write(c.frame); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// CloseWrite ends the direction to the program.
func (c *conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.stream.Write(make([]byte, frameHead))
	return err
}

func (c *conn) Close() error {
	defer c.cancel()
	_ = c.stream.Close() // it may be broken, or closed already
	return nil
}
