package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
)

// Content of a large transfer goes through memory that both sides map. A Shared frame then replaces the bytes of a Data
// frame, and content is copied twice instead of four times. The host creates the memory for one stream and one channel,
// and passes its file descriptor with a Share frame. The guest answers with a Share frame once it has mapped it. Where
// descriptors cannot be passed there is no answer, and the content stays in Data frames.
//
// The memory is a ring of memorySize bytes. Data in it uses credit like other data, so the sender never overwrites what
// the receiver has not consumed.

const (
	// memorySize is the size of shared memory, in bytes. With a smaller ring the two sides wait for each other more
	// often, and a larger one takes longer to set up than it saves.
	memorySize = 2 << 20
	// maxShared is the most bytes of data that a Shared frame announces.
	maxShared = memorySize / 8
	// ShareFrom is the size of content, in bytes, from which shared memory saves more time than it takes to set up.
	ShareFrom = 4 << 20
)

// memory is a mapping of shared memory. The peer may change its bytes at any time.
type memory struct {
	bytes []byte

	mu    sync.Mutex
	users int // the stream, and the calls that use bytes; the last one unmaps
}

// hold keeps the memory mapped until release is called. It returns false if it is unmapped already.
func (m *memory) hold() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users == 0 {
		return false
	}
	m.users++
	return true
}

func (m *memory) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.users == 0 {
		unmap(m.bytes)
	}
}

// passer is a connection over which the host can pass a file descriptor, such as a Socket.
type passer interface {
	// AcceptFiles makes Read accept file descriptors.
	AcceptFiles()
	// TakeFile returns the file descriptor that came with the bytes read last, or -1. The caller must close it.
	TakeFile() int
	// WriteFile writes p with a file descriptor.
	WriteFile(p []byte, fd int) error
}

// outbound reports whether this side sends the data of a channel.
func (c *Conn) outbound(channel byte) bool { return (channel == Stdin) == (c.role == Host) }

// Share offers the guest shared memory for the rest of the data on a channel. It does nothing if that is not possible,
// on a guest's side, and when it is called again. Only one goroutine may send on the channel.
func (s *Stream) Share(channel byte) {
	conn, ok := s.c.rw.(passer)
	if !ok || s.c.role != Host || !s.offer() {
		return
	}
	m, fd, err := newMemory(s.c.outbound(channel))
	if err != nil {
		return
	}
	defer closeFile(fd)
	if s.adopt(m, channel) {
		s.c.pass(conn, s, appendShare(s.id, channel), fd) // without an answer of the guest the memory is not used
	}
}

// offer reports whether it is called for the first time.
func (s *Stream) offer() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.offered
	s.offered = true
	return first
}

// adopt makes m the stream's memory for data on a channel. If the stream is closed, it unmaps m and returns false.
func (s *Stream) adopt(m *memory, channel byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.ended || s.shared != nil {
		m.release()
		return false
	}
	s.shared, s.sharedOn = m, channel
	return true
}

// use lets both sides use the memory. s.mu is held.
func (s *Stream) use() {
	s.agreed = true
	s.window = memorySize
	if s.c.outbound(s.sharedOn) {
		s.tokens += memorySize - window
	}
}

func appendShare(stream uint32, channel byte) []byte {
	return append(appendHeader(nil, stream, Share, 1), channel)
}

// pass writes a frame of an open stream with a file descriptor.
func (c *Conn) pass(conn passer, s *Stream, frame []byte, fd int) {
	c.waiting.Add(1)
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.waiting.Add(-1)
	if err := c.w.Flush(); err != nil {
		c.fail(err)
		return
	}
	if !s.closed {
		c.impatiently(func() { _ = conn.WriteFile(frame, fd) }) // a broken connection shows at the next write
	}
}

// takeShare handles a Share frame of stream s, which is nil if the stream is closed on this side.
func (c *Conn) takeShare(s *Stream, payload []byte) error {
	if len(payload) != 1 {
		return protocolError("share frame of %d bytes", len(payload))
	}
	if c.role == Host {
		if s == nil {
			return nil
		}
		return s.agree(payload[0])
	}
	conn, ok := c.rw.(passer)
	if !ok {
		return nil
	}
	fd := conn.TakeFile()
	if fd < 0 {
		return nil // lost on the way
	}
	defer closeFile(fd)
	if s == nil {
		return nil
	}
	m, err := mapMemory(fd, !c.outbound(payload[0]))
	if err != nil {
		return nil //nolint:nilerr // without an answer, the host does not use the memory
	}
	if s.adopt(m, payload[0]) && s.write(Share, payload) == nil { // the answer comes before data in the memory
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.shared != nil {
			s.use()
		}
	}
	return nil
}

// agree notes that the guest has mapped the memory.
func (s *Stream) agree(channel byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil: // closed on this side
	case s.ended || s.shared == nil || s.agreed || channel != s.sharedOn:
		return protocolError("unexpected share frame on stream %d", s.id)
	default:
		s.use()
	}
	return nil
}

// takeShared handles a Shared frame. s.mu is held.
func (s *Stream) takeShared(payload []byte) error {
	switch {
	case s.err != nil: // closed on this side
		return nil
	case len(payload) != 5:
		return protocolError("shared frame of %d bytes", len(payload))
	case !s.agreed || payload[0] != s.sharedOn || s.c.outbound(payload[0]):
		return protocolError("unexpected shared data on stream %d", s.id)
	}
	n := binary.BigEndian.Uint32(payload[1:])
	if n == 0 || n > uint32(memorySize-s.at) { //nolint:gosec // a few MiB
		return protocolError("shared data of %d bytes at %d", n, s.at)
	}
	end := s.at + int(n)
	data := s.shared.bytes[s.at:end:end]
	s.at = end % memorySize
	return s.hasData(Event{Type: Data, Channel: payload[0], Payload: data, shared: s.shared})
}

// outlet returns the memory for data that this side sends on a channel; nil if there is none.
func (s *Stream) outlet(channel byte) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.agreed || s.sharedOn != channel || !s.c.outbound(channel) {
		return nil
	}
	return s.shared
}

// SendFrom sends what it reads from r, up to size bytes, or everything if size is negative. A host offers shared memory
// if there is much. readErr is the error of reading, nil at the end of r.
func (s *Stream) SendFrom(channel byte, r io.Reader, size int64) (sent int64, readErr, sendErr error) {
	var buf []byte
	for sent != size && readErr == nil && sendErr == nil {
		rest := maxShared
		if size >= 0 {
			rest = int(min(size-sent, maxShared))
		}
		if max(sent, size) >= ShareFrom {
			s.Share(channel)
		}
		n, m := 0, s.outlet(channel)
		if m != nil && plain(r) {
			n, readErr, sendErr = s.fill(m, channel, rest, r.Read)
		} else {
			if m == nil {
				rest = min(rest, MaxData-1) // it fills a frame
			}
			if len(buf) < rest {
				buf = make([]byte, rest)
			}
			n, readErr = r.Read(buf[:rest])
			sendErr = s.Send(channel, buf[:n])
		}
		sent += int64(n)
	}
	if errors.Is(readErr, io.EOF) {
		readErr = nil
	}
	return sent, readErr, sendErr
}

// plain reports whether r puts nothing but content into the buffers that it gets. A reader may use the rest of a buffer
// for anything (io.Reader), which a guest must not see.
func plain(r io.Reader) bool {
	switch r.(type) {
	case *os.File, *bytes.Reader, *strings.Reader:
		return true
	}
	return false
}

// fill waits for credit, lets read put at most limit bytes into the memory, and sends them.
func (s *Stream) fill(m *memory, channel byte, limit int, read func([]byte) (int, error)) (n int, readErr, sendErr error) {
	if !m.hold() {
		return 0, nil, io.ErrClosedPipe
	}
	defer m.release()
	limit = min(limit, maxShared, memorySize-s.at)
	room, err := s.spend(limit, limit)
	if err != nil {
		return 0, nil, err
	}
	n, readErr = read(m.bytes[s.at : s.at+room])
	s.mu.Lock()
	s.tokens += room - n
	s.at = (s.at + n) % memorySize
	s.mu.Unlock()
	if n > 0 {
		sendErr = s.write(Shared, []byte{channel}, credit(n))
	}
	return n, readErr, sendErr
}

// unshare unmaps the stream's memory when no call uses it. s.mu is held.
func (s *Stream) unshare() {
	if s.shared != nil {
		s.shared.release()
		s.shared, s.agreed = nil, false
	}
}
