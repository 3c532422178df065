package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// window is how many bytes of data a side may send on a stream before it gets more credit.
	window = 1 << 20
	// maxQueued is how many messages of a guest may wait on a stream to be received.
	maxQueued = 64
	// maxOrders is the same for a host, which is trusted, and may signal a command in a loop.
	maxOrders = 64 << 10
	// maxStreams is how many streams the peer may have open at once.
	maxStreams = 4096
	// writeWithin bounds the host's wait for a guest to take writeStep bytes. A guest reads whatever
	// its commands do; one that was stopped would else hold up who kills and closes, for ever.
	writeWithin = 15 * time.Second
	writeStep   = 128 << 10
	// askAfter is how long a guest with open streams may be silent until the host asks for a sign of life, and
	// answerWithin how long it may take to give one: longer than a daemon in between stands still when it is restarted.
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

// Conn is one side of a connection. Its methods may be called by many goroutines at once.
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

	heard atomic.Bool // something came since attend looked last
}

// NewConn makes a side of a connection over rw. handler is called, in the reading goroutine, with each
// stream that the peer opens and its request, which it may not keep; nil refuses them.
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
	}
	// The greeting waits in the buffer, so that it is the first frame whoever writes first.
	_, _ = c.w.Write(append(appendHeader(nil, 0, Hello, 1), Version)) // smaller than the buffer
	return c
}

// impatient writes to a guest, and ends the connection to one that does not read.
type impatient struct{ c *Conn }

func (w impatient) Write(p []byte) (written int, err error) {
	for err == nil && written < len(p) {
		stalled := time.AfterFunc(writeWithin, func() { w.c.fail(errStalled) })
		var n int
		n, err = w.c.rw.Write(p[written:min(len(p), written+writeStep)])
		stalled.Stop()
		written += n
	}
	return written, err
}

// attend asks a guest that is silent for a sign of life, and ends the connection to one that gives none: it was stopped
// from inside, say. An honest guest answers whatever its commands do.
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
		case c.heard.Swap(false) || idle:
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

// signOfLife tells the answer from that to a Ping.
var signOfLife = []byte{1}

// errSilent is the reason of a connection whose guest gave no sign of life.
var errSilent = fmt.Errorf("it gave no sign of life for %v", answerWithin)

// errStalled is the reason of a connection whose guest does not read.
var errStalled = fmt.Errorf("nothing was read from it for %v", writeWithin)

// Serve reads until the connection ends, and returns why. Every stream is broken then.
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
		return protocolError("the peer speaks version %d, this side %d", f.Payload[0], Version)
	}
	return nil
}

// take handles one frame.
func (c *Conn) take(f Frame) error {
	if c.role == Host {
		c.heard.Store(true)
	}
	switch f.Type {
	case Ping:
		return c.write(0, Pong, f.Payload)
	case Pong:
		if bytes.Equal(f.Payload, signOfLife) {
			return nil
		}
		select {
		case c.ping <- bytes.Clone(f.Payload):
		default: // nobody asked
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
	if s == nil {
		return nil // it was closed on this side, and the peer did not know yet
	}
	return s.take(f)
}

func (c *Conn) accept(f Frame) error {
	if f.Stream == 0 || f.Stream%2 == 1 == (c.role == Host) {
		return protocolError("the peer opened stream %d, which is not its to open", f.Stream)
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
		return protocolError("stream %d is open already, or one too many", f.Stream)
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

// Ping sends a frame that the peer has to answer, and returns when it has, or false when the connection
// or cancel ended before.
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

// write sends one frame whose payload is the concatenation of parts, and which is no part of an open stream.
func (c *Conn) write(stream uint32, t Type, parts ...[]byte) error {
	return c.writeAll(stream, nil, outgoing{t, parts})
}

// outgoing is a frame that is to be written.
type outgoing struct {
	t     Type
	parts [][]byte // whose concatenation is the payload
}

// writeAll sends frames of one stream together; s is that stream where it is open. Behind its close nothing is sent: who
// sends and who closes may be two, and the peer ends the connection to who goes on.
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
	if err == nil && last { // also for those before, who left that to us
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

// fail ends the connection for a reason; the first one counts.
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
	_ = c.rw.Close() // its end is told by err
	for _, s := range streams {
		s.broken(err)
	}
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended; nil while it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// errClosed is the reason of a connection that this side closed.
var errClosed = errors.New("the connection is closed")

// Close ends the connection.
func (c *Conn) Close() { c.fail(errClosed) }

func credit(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) } //nolint:gosec // at most a window
