package wire

import "io"

// Content reads the data that the peer sends on one channel of a stream, until the end of that channel.
type Content struct {
	Stream  *Stream
	Channel byte
	// Wrong returns the error for any other event, or for err, the error of receiving the next event.
	Wrong func(ev Event, err error) error

	last Event // the last piece; its payload is the unread part
	err  error // returned by all further calls
}

// Next returns the next piece. It may be in shared memory. Such a piece is valid until the stream is closed on this
// side, and a guest may change it at any time. The caller must report its bytes to Consumed. At the end of the channel Next returns
// io.EOF.
func (c *Content) Next() (Event, error) {
	if c.err != nil {
		return Event{}, c.err
	}
	ev, err := c.Stream.Receive()
	switch {
	case err != nil || ev.Type == Message || ev.Channel != c.Channel:
		c.err = c.Wrong(ev, err)
	case ev.Type == End:
		c.err = io.EOF
	}
	return ev, c.err
}

// Read reads received data, and waits for some if there is none.
func (c *Content) Read(p []byte) (int, error) {
	if len(c.last.Payload) == 0 {
		c.last.Recycle()
		c.last = Event{}
		ev, err := c.Next()
		if err != nil {
			return 0, err
		}
		c.last = ev
	}
	if m := c.last.shared; m != nil {
		if !m.hold() {
			return 0, io.ErrClosedPipe
		}
		defer m.release()
	}
	n := copy(p, c.last.Payload)
	c.last.Payload = c.last.Payload[n:]
	c.Stream.Consume(n)
	return n, nil
}
