package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// window is how many bytes of data a side may send on a stream before it gets more credit.
	window = 1 << 20
	// maxQueued is how many messages from a guest may be queued on a stream.
	maxQueued = 64
	// maxOrders is the same for messages from a host. A host is trusted and may signal a command in a loop.
	maxOrders = 64 << 10
	// maxStreams is how many streams the peer may have open at once.
	maxStreams = 4096
	// writeWithin bounds the host's wait for a guest to read writeStep bytes. A guest reads whatever its commands do.
	// A stopped guest would otherwise block kills and closes without a limit.
	writeWithin = 15 * time.Second
	writeStep   = 128 << 10
	// askAfter is how long a guest with open streams may be silent before the host sends it a ping. answerWithin
	// bounds the wait for the answer. It is longer than the restart of a daemon that forwards the connection.
	askAfter     = 30 * time.Second
	answerWithin = 60 * time.Second
)

// Role is the side of a connection.
type Role int

// The two roles.
const (
	Host  Role = 0
	Guest Role = 1
)

// Conn is one side of a connection. Its methods may be called concurrently.
type Conn struct {
	role    Role
	rw      io.ReadWriteCloser
	handler func(*Stream, []byte)

	wmu     sync.Mutex
	w       *bufio.Writer
	waiting atomic.Int32 // writers that are about to take wmu: the last one flushes

	mu      sync.Mutex
	streams map[uint32]*Stream
	next    uint32
	peers   int // open streams that the peer opened
	err     error
	done    chan struct{} // closed when the connection has ended
	ping    chan []byte

	heard atomic.Bool // something was received since the last check by attend
}

// NewConn returns one side of a connection over rw. It calls handler for each stream that the peer opens, in the
// reading goroutine. handler must not keep the request. A nil handler refuses all streams.
func NewConn(rw io.ReadWriteCloser, role Role, handler func(s *Stream, request []byte)) *Conn {
	c := &Conn{
		role: role, rw: rw, handler: handler, streams: map[uint32]*Stream{}, next: 1,
		done: make(chan struct{}), ping: make(chan []byte, 1),
	}
	c.w = bufio.NewWriterSize(rw, writeStep)
	if role == Host {
		c.w = bufio.NewWriterSize(impatient{c}, writeStep)
	} else {
		c.next = 2
		if conn, ok := rw.(passer); ok {
			conn.AcceptFiles()
		}
	}
	// The greeting is buffered first, so that it is the first frame sent.
	_, _ = c.w.Write(append(appendHeader(nil, 0, Hello, 1), Version)) // smaller than the buffer, so it cannot fail
	return c
}

// impatient writes to a guest, and ends the connection if the guest does not read.
type impatient struct{ c *Conn }

func (w impatient) Write(p []byte) (written int, err error) {
	for err == nil && written < len(p) {
		var n int
		w.c.impatiently(func() { n, err = w.c.rw.Write(p[written:min(len(p), written+writeStep)]) })
		written += n
	}
	return written, err
}

// impatiently calls write, and ends the connection if the guest reads nothing meanwhile.
func (c *Conn) impatiently(write func()) {
	var stalled *time.Timer
	stalled = time.AfterFunc(writeWithin, func() {
		if c.Away() { // the guest cannot read
			stalled.Reset(writeWithin)
			return
		}
		c.fail(errStalled)
	})
	defer stalled.Stop()
	write()
}

// Away reports whether the connection waits for a transport.
func (c *Conn) Away() bool {
	l, ok := c.rw.(*Lasting)
	return ok && l.Away()
}

// attend pings a silent guest, and ends the connection if it does not answer. Code in the sandbox may have stopped
// such a guest, for example. An honest guest answers whatever its commands do.
func (c *Conn) attend() {
	tick := time.NewTicker(askAfter)
	defer tick.Stop()
	for silent := time.Duration(0); ; {
		select {
		case <-c.done:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		idle := len(c.streams) == 0
		c.mu.Unlock()
		switch {
		case c.heard.Swap(false) || idle || c.Away():
			silent = 0
			continue
		case silent >= answerWithin:
			c.fail(errSilent)
			return
		case silent == 0:
			_ = c.write(0, Ping, signOfLife) // a failure ends the connection
		}
		silent += askAfter
	}
}

// signOfLife is the payload of attend's pings. It distinguishes their answers from those to Conn.Ping.
var signOfLife = []byte{1}

// errSilent is the error of a connection whose guest did not answer attend's ping.
var errSilent = errors.New("no answer for " + answerWithin.String())

// errStalled is the error of a connection whose guest does not read.
var errStalled = errors.New("the peer read nothing for " + writeWithin.String())

// Serve reads until the connection ends, and returns the reason. All streams are broken by then.
func (c *Conn) Serve() error {
	limit := MaxFromGuest
	if c.role == Guest {
		limit = MaxFromHost
	} else {
		go c.attend()
	}
	d := NewDecoder(c.rw, limit)
	err := c.handshake(d)
	for err == nil {
		var f Frame
		if f, err = d.Next(); err == nil {
			err = c.take(f)
		}
	}
	c.fail(err)
	return err
}

// handshake sends our greeting and waits for the peer's.
func (c *Conn) handshake(d *Decoder) error {
	c.wmu.Lock()
	err := c.w.Flush()
	c.wmu.Unlock()
	if err != nil {
		return err
	}
	f, err := d.Next()
	switch {
	case err != nil:
		return err
	case f.Type != Hello || f.Stream != 0 || len(f.Payload) < 1:
		return protocolError("no greeting")
	case f.Payload[0] != Version:
		return protocolError("peer has version %d, this side %d", f.Payload[0], Version)
	}
	return nil
}

// take handles one frame.
func (c *Conn) take(f Frame) error {
	if c.role == Host {
		c.heard.Store(true)
	}
	switch f.Type { //nolint:exhaustive // the others belong to a stream
	case Ping:
		return c.write(0, Pong, f.Payload)
	case Pong:
		if bytes.Equal(f.Payload, signOfLife) {
			return nil
		}
		select {
		case c.ping <- bytes.Clone(f.Payload):
		default: // not requested
		}
		return nil
	case Hello:
		return protocolError("a second greeting")
	case Open:
		return c.accept(f)
	}
	c.mu.Lock()
	s := c.streams[f.Stream]
	c.mu.Unlock()
	if f.Type == Share {
		return c.takeShare(s, f.Payload)
	}
	if s == nil {
		return nil // closed on this side, which the peer did not know yet
	}
	return s.take(f)
}

func (c *Conn) accept(f Frame) error {
	if f.Stream == 0 || f.Stream%2 == 1 == (c.role == Host) {
		return protocolError("stream %d opened by the wrong side", f.Stream)
	}
	if c.handler == nil {
		return c.write(f.Stream, Close, nil)
	}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	if c.streams[f.Stream] != nil || c.peers >= maxStreams {
		c.mu.Unlock()
		return protocolError("stream %d already open, or too many streams", f.Stream)
	}
	s := newStream(c, f.Stream)
	s.peers = true
	c.peers++
	c.streams[f.Stream] = s
	c.mu.Unlock()
	c.handler(s, f.Payload)
	return nil
}

// Open opens a stream with a request.
func (c *Conn) Open(request []byte) (*Stream, error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	s := newStream(c, c.next)
	c.next += 2
	c.streams[s.id] = s
	c.mu.Unlock()
	if err := c.write(s.id, Open, request); err != nil {
		s.forget()
		return nil, err
	}
	return s, nil
}

// Ping sends a frame that the peer must answer, and waits for the answer. It returns false if the connection ends or
// cancel is closed first.
func (c *Conn) Ping(cancel <-chan struct{}) bool {
	if c.write(0, Ping, nil) != nil {
		return false
	}
	select {
	case <-c.ping:
		return true
	case <-c.done:
	case <-cancel:
	}
	return false
}

// write sends one frame that does not belong to an open stream. Its payload is the concatenation of parts.
func (c *Conn) write(stream uint32, t Type, parts ...[]byte) error {
	return c.writeAll(stream, nil, outgoing{t, parts})
}

// outgoing is a frame to be written.
type outgoing struct {
	t     Type
	parts [][]byte // concatenated to the payload
}

// writeAll sends frames of one stream together. s is that stream if it is open, otherwise nil. Nothing is sent after
// the stream's Close frame: one goroutine may send while another closes, and the peer ends the connection on a frame
// after Close.
func (c *Conn) writeAll(stream uint32, s *Stream, frames ...outgoing) error {
	c.waiting.Add(1)
	c.wmu.Lock()
	last := c.waiting.Add(-1) == 0
	defer c.wmu.Unlock()
	late := s != nil && s.closed
	var err error
	for _, f := range frames {
		if err != nil || late {
			break
		}
		err = c.buffer(stream, f)
		if s != nil && f.t == Close {
			s.closed = true
		}
	}
	if err == nil && last { // also for earlier writers, which left the flush to us
		err = c.w.Flush()
	}
	if err != nil {
		c.fail(err)
		return err
	}
	if late {
		return io.ErrClosedPipe
	}
	return nil
}

// buffer writes a frame to the buffer. wmu is held.
func (c *Conn) buffer(stream uint32, f outgoing) error {
	size := 0
	for _, p := range f.parts {
		size += len(p)
	}
	var head [headerSize]byte
	_, err := c.w.Write(appendHeader(head[:0], stream, f.t, size))
	for _, p := range f.parts {
		if err == nil {
			_, err = c.w.Write(p)
		}
	}
	return err
}

// fail ends the connection with an error, io.EOF if err is nil. Only the first call counts.
func (c *Conn) fail(err error) {
	if err == nil {
		err = io.EOF
	}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	close(c.done)
	streams := c.streams
	c.streams = map[uint32]*Stream{}
	c.mu.Unlock()
	_ = c.rw.Close() // err is the reason to report
	for _, s := range streams {
		s.abort(err)
	}
}

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended; nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Cut reports whether the connection has ended, and not because this side has closed it or because of what the peer did.
func (c *Conn) Cut() bool {
	err := c.Err()
	for _, known := range []error{nil, errClosed, errSilent, errStalled} {
		if errors.Is(err, known) {
			return false
		}
	}
	return !errors.Is(err, ErrProtocol)
}

// errClosed is the error of a connection that this side closed.
var errClosed = errors.New("the connection is closed")

// Close ends the connection.
func (c *Conn) Close() { c.fail(errClosed) }

func credit(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) } //nolint:gosec // at most a window
