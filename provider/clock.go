package provider

import (
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

// clock calls a function once when its time is over. It can be paused.
type clock struct {
	mu      sync.Mutex
	timer   *time.Timer
	left    time.Duration // as of since
	since   time.Time
	paused  int  // number of pauses that were not ended
	stopped bool // for good
}

func startClock(left time.Duration, expire func()) *clock {
	return &clock{left: left, since: time.Now(), timer: time.AfterFunc(left, expire)}
}

// pause stops the clock until resume is called.
func (c *clock) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused == 1 && !c.stopped {
		c.left -= time.Since(c.since)
		c.stopped = !c.timer.Stop() // it is over
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.paused--; c.paused == 0 && !c.stopped {
			c.since = time.Now()
			c.timer.Reset(max(c.left, 0))
		}
	})
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.timer.Stop()
}

// PauseTimeout stops the clock of a command's Timeout until resume is called. It is for a time in which the program is
// held back for nobody, such as a reader that may come back. Without a Timeout it does nothing.
func PauseTimeout(p fumehood.Process) (resume func()) {
	if p, ok := p.(*process); ok && p.clock != nil {
		return p.clock.pause()
	}
	return func() {}
}
