package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
)

// The channels of data on a command's stream.
const (
	Stdin  byte = 0
	Stdout byte = 1
	Stderr byte = 2
	// StdoutAt and StderrAt carry offsets of the next byte on Stdout and Stderr, see Order.Follow.
	StdoutAt byte = 3
	StderrAt byte = 4
)

// Event is what a stream has received: data on a channel, the end of a channel, or a message.
type Event struct {
	Type    Type // Data, End or Message
	Channel byte // for Data and End
	Payload []byte

	frame  []byte  // the payload of a data frame, of which Payload is a part
	shared *memory // of which Payload is a part instead
}

// Recycle allows the payload's memory to be reused. The payload must not be used afterwards. Calling Recycle is
// optional.
func (ev Event) Recycle() {
	if len(ev.frame) == MaxData {
		full.Put((*[MaxData]byte)(ev.frame))
	}
}

// Stream is one exchange over a connection. Only one goroutine may receive. Any number may send.
type Stream struct {
	c     *Conn
	id    uint32
	peers bool // the peer opened it

	closed bool // a Close frame was written; guarded by the connection's wmu

	mu       sync.Mutex
	changed  *sync.Cond
	queue    []Event
	held     int  // bytes of data not consumed yet
	owed     int  // bytes of data consumed, for which no credit was sent yet
	messages int  // messages in the queue
	tokens   int  // bytes of data that may be sent
	ended    bool // the peer sent Close
	window   int  // bytes of data that each side may have on the way or unconsumed

	shared   *memory // for data on the channel sharedOn; nil for none
	sharedOn byte
	offered  bool // Share was called
	agreed   bool // both sides have mapped it
	at       int  // where the next data in it begins

	err error // the connection broke, or this side closed the stream
}

func (s *Stream) write(t Type, parts ...[]byte) error {
	return s.c.writeAll(s.id, s, outgoing{t, parts})
}

func newStream(c *Conn, id uint32) *Stream {
	s := &Stream{c: c, id: id, tokens: window, window: window}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// take handles a frame of this stream. It runs in the connection's reading goroutine and never blocks.
func (s *Stream) take(f Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	if s.ended {
		return protocolError("frame on stream %d after its close", s.id)
	}
	switch f.Type { //nolint:exhaustive // the others belong to the connection
	case Data:
		if len(f.Payload) < 2 || len(f.Payload) > MaxData {
			return protocolError("data frame of %d bytes", len(f.Payload))
		}
		return s.hasData(Event{Type: Data, Channel: f.Payload[0], Payload: f.Payload[1:], frame: f.Payload})
	case Shared:
		return s.takeShared(f.Payload)
	case End:
		if len(f.Payload) != 1 {
			return protocolError("end frame without a channel")
		}
		return s.enqueue(Event{Type: End, Channel: f.Payload[0]})
	case Message:
		return s.enqueue(Event{Type: Message, Payload: bytes.Clone(f.Payload)})
	case Credit:
		if len(f.Payload) != 4 {
			return protocolError("credit of %d bytes", len(f.Payload))
		}
		n := binary.BigEndian.Uint32(f.Payload)
		if n > memorySize || s.tokens+int(n) > s.window {
			return protocolError("more credit on stream %d than was spent", s.id)
		}
		s.tokens += int(n)
	case Close:
		s.ended = true
	}
	return nil
}

// hasData queues data. s.mu is held.
func (s *Stream) hasData(ev Event) error {
	if s.held+s.owed+len(ev.Payload) > s.window {
		return protocolError("more data on stream %d than it had credit for", s.id)
	}
	s.held += len(ev.Payload)
	if ev.shared == nil && s.merge(ev.frame) {
		return nil
	}
	if len(s.queue) >= maxPieces {
		return protocolError("more than %d pieces wait on stream %d", maxPieces, s.id)
	}
	s.queue = append(s.queue, ev)
	return nil
}

const (
	// smallPieces is the size up to which small pieces are merged, in bytes. Without merging, a million small pieces
	// that wait for a slow reader would take many times their own memory.
	smallPieces = 4 << 10
	// manyPieces is the queue length from which pieces are merged even if channels alternate.
	manyPieces = 1 << 10
	// maxPieces is the longest queue. Merged output stays far below it. Offsets that alternate with single bytes take
	// two pieces for nine bytes.
	maxPieces = window / 4
)

// merge appends a small piece of output to the last piece in the queue, if both are of the same channel. In a long
// queue it looks back past output of the other channels. It returns false if the piece was not merged.
func (s *Stream) merge(piece []byte) bool {
	if piece[0] > Stderr {
		return false
	}
	back := 1
	if len(s.queue) >= manyPieces {
		back += int(Stderr)
	}
	for i := len(s.queue) - 1; i >= max(0, len(s.queue)-back); i-- {
		last := &s.queue[i]
		if last.Type != Data || last.Channel > Stderr || last.shared != nil {
			return false
		}
		if last.Channel != piece[0] {
			continue
		}
		if len(last.Payload)+len(piece) > smallPieces {
			return false
		}
		last.Payload = append(last.Payload, piece[1:]...)
		return true
	}
	return false
}

func (s *Stream) enqueue(ev Event) error {
	most := maxQueued
	if s.c.role == Guest {
		most = maxOrders
	}
	if s.messages++; s.messages > most {
		return protocolError("more than %d messages wait on stream %d", most, s.id)
	}
	s.queue = append(s.queue, ev)
	return nil
}

// Receive waits for the next event and returns it. It returns io.EOF after the peer's Close, and the connection's
// error after the end of the connection. The caller must report processed data to Consumed.
func (s *Stream) Receive() (Event, error) {
	s.mu.Lock()
	for len(s.queue) == 0 {
		switch {
		case s.err != nil:
			defer s.mu.Unlock()
			return Event{}, s.err
		case s.ended:
			s.mu.Unlock()
			return Event{}, io.EOF
		}
		s.changed.Wait()
	}
	ev := s.queue[0]
	s.queue = s.queue[1:]
	if ev.Type != Data {
		s.messages--
	}
	s.mu.Unlock()
	return ev, nil
}

// Consume reports that n bytes of received data were processed, so that the peer may send more.
func (s *Stream) Consume(n int) {
	s.mu.Lock()
	s.held -= n
	s.owed += n
	grant := 0
	// Credit is sent in large amounts, so that not every small write costs a frame in return.
	if s.owed >= s.window/4 && !s.ended && s.err == nil {
		grant, s.owed = s.owed, 0
	}
	s.mu.Unlock()
	if grant > 0 {
		_ = s.write(Credit, credit(grant)) // a broken connection shows at the next event
	}
}

// Send sends data on a channel. It waits for credit.
func (s *Stream) Send(channel byte, p []byte) error {
	for len(p) > 0 {
		if m := s.outlet(channel); m != nil && len(p) > smallPieces {
			n, _, err := s.fill(m, channel, len(p), func(room []byte) (int, error) { return copy(room, p), nil })
			if err != nil {
				return err
			}
			p = p[n:]
			continue
		}
		n, err := s.spend(1, min(len(p), MaxData-1))
		if err != nil {
			return err
		}
		if err := s.write(Data, []byte{channel}, p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// spend waits for at least least bytes of credit, at most a quarter of a window, and takes up to n bytes.
func (s *Stream) spend(least, n int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.tokens < least && s.err == nil && !s.ended {
		s.changed.Wait()
	}
	switch {
	case s.err != nil:
		return 0, s.err
	case s.ended:
		return 0, io.ErrClosedPipe
	}
	n = min(n, s.tokens)
	s.tokens -= n
	return n, nil
}

// SendEnd reports the end of the data on a channel.
func (s *Stream) SendEnd(channel byte) error { return s.send(End, []byte{channel}) }

// SendMessage sends a message.
func (s *Stream) SendMessage(m []byte) error { return s.send(Message, m) }

// send sends a frame that needs no credit.
func (s *Stream) send(t Type, payload []byte) error {
	s.mu.Lock()
	err := s.err
	if err == nil && s.ended && !s.peers {
		err = io.ErrClosedPipe
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.write(t, payload)
}

// SendLast sends a message and closes the stream, in one write.
func (s *Stream) SendLast(m []byte) error {
	first, ended := s.closeSide()
	if !first {
		return io.ErrClosedPipe
	}
	defer s.forget()
	if ended {
		return nil // the peer does not receive any more
	}
	return s.c.writeAll(s.id, s, outgoing{Message, [][]byte{m}}, outgoing{t: Close})
}

// Close closes the stream on this side. Nothing more is sent, and received frames are dropped.
func (s *Stream) Close() {
	first, ended := s.closeSide()
	if !first {
		return
	}
	if !ended {
		_ = s.write(Close) // on a broken connection the stream is closed anyway
	}
	s.forget()
}

// closeSide marks the stream as closed on this side. first reports whether it was open until now, ended whether the peer
// has closed it, so that no Close frame is needed.
func (s *Stream) closeSide() (first, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unshare()
	first = s.err == nil
	if first {
		s.err = io.ErrClosedPipe
	}
	s.changed.Broadcast()
	return first, s.ended
}

// forget removes the stream from the connection.
func (s *Stream) forget() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.streams[s.id] == s {
		delete(s.c.streams, s.id)
		if s.peers {
			s.c.peers--
		}
	}
}

// abort ends the stream because the connection has ended. Events received before can still be read.
func (s *Stream) abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.changed.Broadcast()
}
