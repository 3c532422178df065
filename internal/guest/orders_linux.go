package guest

import (
	"encoding/json"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// listen handles the host's input and orders until the stream or the command ends.
func (c *command) listen() {
	defer c.typed.close()
	for {
		ev, err := c.s.Receive()
		if err != nil {
			c.order(wire.Order{Kill: true}) // the host is gone
			return
		}
		c.take(c.s, ev)
	}
}

// take handles one event that a host sent about the command, and reports whether the host asks to follow the output.
// It does not block: a program that does not read its input must not delay orders.
func (c *command) take(s *wire.Stream, ev wire.Event) (follow bool) {
	switch {
	case ev.Type == wire.Message:
		var o wire.Order
		if json.Unmarshal(ev.Payload, &o) == nil {
			c.order(o)
		}
		return o.Follow
	case ev.Channel != wire.Stdin || c.input == nil:
		s.Consume(len(ev.Payload))
	case !c.typed.put(piece{ev.Payload, s}): // an empty piece is the end of input
		s.Consume(len(ev.Payload)) // the command has ended
	}
	return false
}

// feed writes the input to the program.
func (c *command) feed() {
	var last byte // the last byte of the input
	for {
		p, ok := c.typed.take()
		if !ok {
			break
		}
		switch {
		case len(p.data) > 0:
			_, _ = c.input.Write(p.data) // a program that stops reading is not an error
			last = p.data[len(p.data)-1]
			p.from.Consume(len(p.data))
		case c.req.Terminal == nil:
			_ = c.input.Close()
		default:
			_, _ = c.input.Write([]byte(wire.EndOfInput(last)))
		}
	}
	if c.req.Terminal == nil {
		_ = c.input.Close()
	}
}

// order carries out an order of the host. It does nothing when the command is over.
func (c *command) order(o wire.Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.ordered = c.ordered || o.Kill || o.Signal == int(unix.SIGKILL)
	switch {
	case o.Kill:
		c.killNow(c.req.GraceMS)
	case o.Signal > 0:
		_ = post(c.w.socket, task{Signal: o.Signal}, nil)
	case o.Resize != nil && c.req.Terminal != nil:
		_ = wire.Control(c.input.file, func(fd int) error { return setSize(fd, *o.Resize) }) // fails if the command has just ended
	}
}

// kill makes the worker kill the command and all its descendants. grace is in milliseconds.
func (c *command) kill(grace int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killNow(grace)
}

// killNow is kill with c.mu held. Only the first call counts.
func (c *command) killNow(grace int64) {
	if c.killing {
		return
	}
	c.killing = true
	if grace == 0 {
		c.standStill()
	} else {
		time.AfterFunc(time.Duration(grace)*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.standStill()
		})
	}
	go c.g.press(c.w, pressFirst, c.done)
	_ = post(c.w.socket, task{Kill: &grace}, nil) // if the worker is gone, nothing is left to kill
}

// standStill stops all processes of the container while the worker kills, if there are more than crowd. c.mu is held.
func (c *command) standStill() {
	if c.g.cgroup.tasks.read() > crowd {
		c.still.begin(c.w.pid)
	}
}
