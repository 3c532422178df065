package docker

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

// Sandboxes are let in by two limits: how many start at once, which is lowered while the daemon is slow, and how many
// are there at once. Whoever waits is let in in the order in which they came.

// pace decides how many sandboxes may start at once, by how long the daemon takes for what it answers from memory:
// one step less by a third where it has become slow, and one more for each round of starts in which it has not. It is
// pure.
type pace struct {
	most  float64
	limit float64

	calm    time.Duration // what the daemon takes when it has little to do: the least of the last calmSpan answers
	lowest  time.Duration // of the span under way
	answers int
	recent  time.Duration // a moving average

	rest int // so many starts have to end before the limit is lowered again
}

const (
	// calmSpan is of how many answers the least counts as calm. An average would take a slow daemon for a calm one
	// after a while.
	calmSpan = 500
	// smoothing is the share of the newest answer in the average.
	smoothing = 0.1
	// slowFactor is how many times as long as when it is calm a slow daemon takes.
	slowFactor = 8
	// slowFloor is what is never slow.
	slowFloor = 50 * time.Millisecond
	// lessen is by what the limit is multiplied where the daemon is slow.
	lessen = 2. / 3
)

func newPace(most int) *pace { return &pace{most: float64(most), limit: float64(most)} }

// answered takes note of how long the daemon took.
func (p *pace) answered(took time.Duration) {
	if p.answers == 0 || took < p.lowest {
		p.lowest = took
	}
	if p.calm == 0 || took < p.calm {
		p.calm = took
	}
	if p.answers++; p.answers == calmSpan {
		p.calm, p.answers = p.lowest, 0
	}
	if p.recent == 0 {
		p.recent = took
	}
	p.recent += time.Duration(smoothing * float64(took-p.recent))
}

func (p *pace) slow() bool { return p.recent > max(slowFloor, slowFactor*p.calm) }

// ended takes note of the end of a start.
func (p *pace) ended() {
	p.rest--
	switch {
	case !p.slow():
		p.limit = min(p.most, p.limit+1/p.limit)
	case p.rest <= 0:
		p.limit = max(1, p.limit*lessen)
		p.rest = int(math.Ceil(p.limit))
	}
}

// slots is how many may start at once.
func (p *pace) slots() int { return int(p.limit) }

// admission lets sandboxes in.
type admission struct {
	mu       sync.Mutex
	pace     *pace
	starting int
	there    int
	most     int // that may be there; 0 means any number
	queue    []chan struct{}
}

func newAdmission(starting, there int) *admission {
	if starting == 0 {
		starting = startsPerCore * runtime.GOMAXPROCS(0)
	}
	return &admission{pace: newPace(starting), most: there}
}

// startsPerCore is how many sandboxes start at once for each core, where the options do not say.
const startsPerCore = 2

// enter waits until a sandbox may start. Who has entered calls started once, and left once the sandbox is gone.
func (a *admission) enter(ctx context.Context) error {
	a.mu.Lock()
	turn := make(chan struct{})
	a.queue = append(a.queue, turn)
	a.admit()
	a.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, waits := range a.queue {
		if waits == turn {
			a.queue = append(a.queue[:i], a.queue[i+1:]...)
			a.admit() // perhaps nobody else was let in for it
			return ctx.Err()
		}
	}
	a.starting-- // it was let in just now
	a.there--
	a.admit()
	return ctx.Err()
}

// admit lets in who may; a.mu is held.
func (a *admission) admit() {
	for len(a.queue) > 0 && a.starting < a.pace.slots() && (a.most == 0 || a.there < a.most) {
		close(a.queue[0])
		a.queue = a.queue[1:]
		a.starting++
		a.there++
	}
}

// started gives the place among those that start to the next one.
func (a *admission) started() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pace.ended()
	a.starting--
	a.admit()
}

// left gives the place among those that are there to the next one.
func (a *admission) left() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.there--
	a.admit()
}

// answered takes note of how long the daemon took for what it answers from memory.
func (a *admission) answered(took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pace.answered(took)
}

// checkAdmission refuses limits that cannot be.
func (o Options) checkAdmission() error {
	if o.MaxStarting >= 0 && o.MaxRunning >= 0 {
		return nil
	}
	return &fumehood.Error{Op: "connect", Class: fumehood.ErrConfig, Err: errors.New("MaxStarting and MaxRunning are at least 0"), Hint: "0 means the default"}
}
