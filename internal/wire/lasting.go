package wire

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"
)

// Lasting is a connection that outlives what transports its bytes, such as a stream through a daemon. What was sent and not
// received when a transport ends is sent again over the next one, so that each byte arrives once and in order. It ends when
// either side closes it, or when there was no transport for too long. Only one goroutine may read.
//
// A transport carries records: a length (4 bytes, big-endian), the number of bytes that the sender has received since the
// connection began (8 bytes), and as many bytes as the length says. A length of endOfAll means that the sender has closed the
// connection. The first record of a transport follows an exchange; see Continue.
type Lasting struct {
	id [16]byte

	mu       sync.Mutex
	changed  *sync.Cond // on mu: t, err or acked have changed
	t        *transport // nil while there is none
	count    int        // of transports
	window   time.Duration
	sent     []record // not acknowledged
	next     int      // the index in sent of the first record that t has not been given
	sending  bool     // a goroutine is in send
	owes     bool     // the peer waits for an acknowledgment
	end      uint64   // how many bytes were written
	acked    uint64   // how many of them the peer has received
	received uint64   // how many bytes were received
	reported uint64   // the number of received bytes that the peer knows
	err      error    // why it has ended
	ended    func()   // called once at the end; may be nil
}

// record is a part of what was written. buf has space for its head, and the bytes.
type record struct {
	start uint64
	buf   []byte
}

// transport carries a Lasting for some time.
type transport struct {
	io.ReadWriteCloser
	r    *bufio.Reader
	rest int // the number of bytes of the current record that were not read
}

const (
	recordHead = 12
	// maxRecord bounds a record, and mostUnacknowledged what is kept to be sent again. Writes wait beyond that.
	maxRecord          = writeStep
	mostUnacknowledged = 1 << 20
	// ackAfter is after how many bytes a receiver acknowledges them, even if it has nothing else to send.
	ackAfter = 64 << 10
	endOfAll = 1<<32 - 1
	// farewellWithin bounds what Close does to tell the peer.
	farewellWithin = time.Second
	// longestWindow bounds how long a guest keeps a connection without a transport.
	longestWindow = 5 * time.Minute
)

// The first byte of what a host sends over a new transport, and of the answer.
const (
	begins    = 1
	continues = 2
	unknown   = 3
)

// ErrNoTransport ends a Lasting that had no transport for too long.
var ErrNoTransport = errors.New("the connection was cut, and nothing has connected again in time")

// errForgotten means that the guest does not know the connection.
var errForgotten = errors.New("the guest does not know the connection any more")

// NewLasting returns the host's side of a new connection. It has no transport yet.
func NewLasting() *Lasting {
	l := newLasting()
	_, _ = rand.Read(l.id[:]) // never fails
	return l
}

func newLasting() *Lasting {
	l := &Lasting{}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// Continue gives the host's side a transport, on which both sides have proved themselves. window is how long the guest keeps
// the connection when the transport has ended. The host sends whether the connection begins or continues (1 byte), its
// identifier (16 bytes), how many bytes the host has received (8 bytes), and the window in milliseconds (4 bytes). The guest
// answers with a byte and its own number of received bytes. If the guest has forgotten the connection, that is its end.
func (l *Lasting) Continue(rw io.ReadWriteCloser, window time.Duration) error {
	received, count := l.detach()
	hello := append([]byte{continues}, l.id[:]...)
	if count == 0 {
		hello[0] = begins
	}
	hello = binary.BigEndian.AppendUint64(hello, received)
	hello = binary.BigEndian.AppendUint32(hello, uint32(min(window, longestWindow).Milliseconds())) //nolint:gosec // positive and small
	if _, err := rw.Write(hello); err != nil {
		return err
	}
	var answer [9]byte
	if _, err := io.ReadFull(rw, answer[:]); err != nil {
		return err
	}
	if answer[0] != continues {
		l.Fail(errForgotten)
		return errForgotten
	}
	return l.attach(rw, binary.BigEndian.Uint64(answer[1:]))
}

// Lastings are the connections of a guest.
type Lastings struct {
	mu  sync.Mutex
	all map[[16]byte]*Lasting
}

// Take takes a transport on which both sides have proved themselves. It returns the connection if it is a new one, and nil if
// the transport continues one. It closes the transport on an error.
func (c *Lastings) Take(rw io.ReadWriteCloser) (*Lasting, error) {
	l, fresh, err := c.take(rw)
	if err != nil {
		return nil, errors.Join(err, rw.Close())
	}
	if !fresh {
		return nil, nil //nolint:nilnil // see above
	}
	return l, nil
}

func (c *Lastings) take(rw io.ReadWriteCloser) (l *Lasting, fresh bool, err error) {
	var hello [29]byte
	if _, err := io.ReadFull(rw, hello[:]); err != nil {
		return nil, false, err
	}
	id := [16]byte(hello[1:])
	peers := binary.BigEndian.Uint64(hello[17:])
	window := min(time.Duration(binary.BigEndian.Uint32(hello[25:]))*time.Millisecond, longestWindow)
	c.mu.Lock()
	l = c.all[id]
	if fresh = l == nil && hello[0] == begins; fresh {
		l = newLasting()
		l.id = id
		l.ended = func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.all, id)
		}
		if c.all == nil {
			c.all = map[[16]byte]*Lasting{}
		}
		c.all[id] = l
	}
	c.mu.Unlock()
	if l == nil {
		_, err := rw.Write([]byte{unknown, 8: 0})
		return nil, false, errors.Join(errForgotten, err)
	}
	received, _ := l.detach()
	if _, err = rw.Write(binary.BigEndian.AppendUint64([]byte{continues}, received)); err == nil {
		l.mu.Lock()
		l.window = window
		l.mu.Unlock()
		err = l.attach(rw, peers)
	}
	if err != nil && fresh {
		l.Fail(err)
	}
	return l, fresh, err
}

// detach ends the transport. It returns the number of received bytes, which no longer changes, and how many transports there were.
func (l *Lasting) detach() (received uint64, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != nil {
		_ = l.t.Close() // another one follows
		l.t = nil
	}
	return l.received, l.count
}

// attach begins with another transport, over which the peer gets what it has not received.
func (l *Lasting) attach(rw io.ReadWriteCloser, peers uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if err := l.acknowledge(peers); err != nil {
		return err
	}
	l.count++
	l.t, l.next = &transport{ReadWriteCloser: rw, r: bufio.NewReaderSize(rw, 4<<10)}, 0
	l.changed.Broadcast()
	if !l.sending && len(l.sent) > 0 {
		l.sending = true
		go l.send()
	}
	return nil
}

// acknowledge drops what the peer has received. l.mu is held.
func (l *Lasting) acknowledge(peers uint64) error {
	if peers > l.end {
		return protocolError("%d bytes are acknowledged, %d were sent", peers, l.end)
	}
	if peers <= l.acked {
		return nil
	}
	l.acked = peers
	for len(l.sent) > 0 && l.sent[0].start+uint64(len(l.sent[0].buf)-recordHead) <= peers { //nolint:gosec // not negative
		l.sent[0] = record{}
		l.sent, l.next = l.sent[1:], max(l.next-1, 0)
	}
	if len(l.sent) == 0 {
		l.sent = nil
	}
	l.changed.Broadcast()
	return nil
}

// drop records that a transport has ended. A guest waits for the next one for the window.
func (l *Lasting) drop(t *transport) {
	_ = t.Close() // it has ended
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != t {
		return
	}
	l.t = nil
	l.changed.Broadcast()
	if l.window > 0 {
		count := l.count
		time.AfterFunc(l.window, func() {
			l.mu.Lock()
			late := l.t == nil && l.count == count
			l.mu.Unlock()
			if late {
				l.Fail(ErrNoTransport)
			}
		})
	}
}

// Cut waits until the connection has no transport, and reports whether it can continue with another one.
func (l *Lasting) Cut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.err == nil && l.t != nil {
		l.changed.Wait()
	}
	return l.err == nil
}

// Away reports whether the connection waits for a transport.
func (l *Lasting) Away() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err == nil && l.t == nil
}

// Read reads what the peer has written. It waits while there is no transport.
func (l *Lasting) Read(p []byte) (int, error) {
	for {
		l.mu.Lock()
		for l.err == nil && l.t == nil {
			l.changed.Wait()
		}
		t, err := l.t, l.err
		l.mu.Unlock()
		if err != nil {
			return 0, err
		}
		n, err := l.readFrom(t, p)
		switch {
		case n > 0:
			return n, nil
		case errors.Is(err, io.EOF) && t.rest == endOfAll, errors.Is(err, ErrProtocol):
			l.Fail(err)
			return 0, err
		case err != nil:
			l.drop(t)
		}
	}
}

// readFrom reads from a transport. It returns 0 and no error for a record without bytes, and for one that comes again.
func (l *Lasting) readFrom(t *transport, p []byte) (int, error) {
	if t.rest == 0 {
		var head [recordHead]byte
		if _, err := io.ReadFull(t.r, head[:]); err != nil {
			return 0, err
		}
		length := binary.BigEndian.Uint32(head[:])
		if length == endOfAll {
			t.rest = endOfAll
			return 0, io.EOF
		}
		if length > maxRecord {
			return 0, protocolError("a record of %d bytes, at most %d are allowed", length, maxRecord)
		}
		l.mu.Lock()
		err := l.acknowledge(binary.BigEndian.Uint64(head[4:]))
		l.mu.Unlock()
		if t.rest = int(length); t.rest == 0 || err != nil {
			return 0, err
		}
	}
	n, err := t.r.Read(p[:min(len(p), t.rest)])
	if n <= 0 {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != t {
		return 0, nil // the peer was told that this was not received
	}
	t.rest -= n
	l.received += uint64(n)
	if l.received-l.reported >= ackAfter {
		if l.owes = true; !l.sending {
			l.sending = true
			go l.send()
		}
	}
	return n, nil
}

// Write writes to the peer. It waits while too much is not acknowledged, and not for a transport.
func (l *Lasting) Write(p []byte) (written int, err error) {
	for written < len(p) {
		piece := p[written:min(len(p), written+maxRecord)]
		r := record{buf: append(make([]byte, recordHead, recordHead+len(piece)), piece...)}
		l.mu.Lock()
		for l.err == nil && l.end-l.acked >= mostUnacknowledged {
			l.changed.Wait()
		}
		if err := l.err; err != nil {
			l.mu.Unlock()
			return written, err
		}
		r.start = l.end
		l.end += uint64(len(piece))
		l.sent = append(l.sent, r)
		others := l.sending
		l.sending = true
		l.mu.Unlock()
		if !others {
			l.send()
		}
		written += len(piece)
	}
	return written, nil
}

// send gives the transport what it has not been given. Only one goroutine does.
func (l *Lasting) send() {
	for {
		l.mu.Lock()
		t := l.t
		if t == nil || l.next == len(l.sent) && !l.owes {
			l.sending = false
			l.mu.Unlock()
			return
		}
		b := make([]byte, recordHead)
		if l.next < len(l.sent) {
			r := l.sent[l.next]
			l.next++
			b = r.buf
			if l.acked > r.start { // the transport before has carried a part
				b = r.buf[l.acked-r.start:]
			}
		}
		binary.BigEndian.PutUint32(b, uint32(len(b)-recordHead)) //nolint:gosec // at most maxRecord
		binary.BigEndian.PutUint64(b[4:], l.received)
		l.reported, l.owes = l.received, false
		l.mu.Unlock()
		if _, err := t.Write(b); err != nil {
			l.drop(t)
		}
	}
}

// Fail ends the connection on this side, for a reason such as that nothing can transport it any more. Only the first call counts.
func (l *Lasting) Fail(err error) {
	if t, _ := l.over(err); t != nil {
		_ = t.Close() // err is the reason
	}
}

// over records the end. It returns the transport, and whether nothing is being sent over it.
func (l *Lasting) over(err error) (t *transport, free bool) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return nil, false
	}
	l.err = err
	t, l.t = l.t, nil
	l.sent = nil
	l.next = 0
	free = !l.sending
	ended := l.ended
	l.changed.Broadcast()
	l.mu.Unlock()
	if ended != nil {
		ended()
	}
	return t, free
}

// Close ends the connection, and tells the peer. What was written and not sent is lost.
func (l *Lasting) Close() error {
	t, free := l.over(io.ErrClosedPipe)
	if t == nil {
		return nil
	}
	if free {
		late := time.AfterFunc(farewellWithin, func() { _ = t.Close() })
		_, _ = t.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, endOfAll), 0)) // without it the peer waits
		late.Stop()
	}
	return t.Close()
}
