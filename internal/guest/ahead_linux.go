package guest

import (
	"encoding/binary"
	"time"

	"github.com/fumehood/fumehood/internal/wire"
)

// aheadMost is about how many bytes of a stream are sent ahead at a time. It bounds what a program costs that writes
// more than is kept.
const aheadMost = 1 << 20

// ahead sends the kept output of a command while it runs. It never blocks the program.
type ahead struct {
	stop, stopped chan struct{}
	sent          [2]int64 // offsets of the output that comes next
}

// sendAhead starts to send output. The start of the command was reported.
func (c *command) sendAhead() *ahead {
	a := &ahead{stop: make(chan struct{}), stopped: make(chan struct{})}
	go func() {
		defer close(a.stopped)
		pause := time.NewTimer(wire.AheadEvery)
		defer pause.Stop()
		for {
			select {
			case <-pause.C:
			case <-a.stop:
				return
			}
			var more [2]<-chan struct{}
			for i := range c.tails {
				var ok bool
				if more[i], ok = a.next(c, i); !ok {
					return // the host is gone
				}
			}
			select {
			case <-more[0]:
			case <-more[1]:
			case <-a.stop:
				return
			}
			pause.Reset(wire.AheadEvery)
		}
	}()
	return a
}

// next sends what one output has now. more is closed when there is more.
func (a *ahead) next(c *command, i int) (more <-chan struct{}, ok bool) {
	const piece = 32 << 10
	for until := a.sent[i] + aheadMost; ; {
		p, at, more := c.tails[i].From(a.sent[i], piece)
		if len(p) == 0 {
			return more, true
		}
		if !c.send(i, p, at, &a.sent[i]) {
			return nil, false
		}
		if a.sent[i] >= until || isClosed(a.stop) {
			now := make(chan struct{})
			close(now)
			return now, true
		}
	}
}

// end stops sending, and returns the offsets of the output that was not sent. a may be nil.
func (a *ahead) end() [2]int64 {
	if a == nil {
		return [2]int64{}
	}
	close(a.stop)
	<-a.stopped
	return a.sent
}

// send sends p, which is at an offset of an output, as far as it comes after what was sent, and counts it. If output
// before it was not sent, it first sends the offset. It reports false if the host is gone.
func (c *command) send(i int, p []byte, at int64, sent *int64) bool {
	if at > *sent {
		if c.s.Send(offsets[i], binary.BigEndian.AppendUint64(nil, uint64(at))) != nil { //nolint:gosec // not negative
			return false
		}
		*sent = at
	}
	p = p[min(*sent-at, int64(len(p))):]
	*sent += int64(len(p))
	return c.s.Send(channels[i], p) == nil
}
