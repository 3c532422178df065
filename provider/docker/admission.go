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

// Two limits control admission: how many sandboxes start at once, and how many exist at once. The first is lowered
// while the daemon is slow. Waiting callers are admitted in order of arrival.

// pace decides how many sandboxes may start at once. It measures how long the daemon takes to answer requests that it
// serves from memory. When the daemon becomes slow, the limit falls by a third. After each round of starts in which it
// is not slow, the limit rises by one. pace is pure.
type pace struct {
	most  float64
	limit float64

	calm    time.Duration // the daemon's response time under low load: the minimum of the last calmSpan answers
	lowest  time.Duration // the minimum of the current span
	answers int
	recent  time.Duration // a moving average

	rest int // how many starts must end before the limit is lowered again
}

const (
	// calmSpan is the number of answers over which calm is the minimum. An average would eventually treat a slow daemon
	// as calm.
	calmSpan = 500
	// smoothing is the weight of the newest answer in the moving average.
	smoothing = 0.1
	// slowFactor is the multiple of calm above which the daemon counts as slow.
	slowFactor = 8
	// slowFloor is the response time up to which the daemon never counts as slow.
	slowFloor = 50 * time.Millisecond
	// lessen is the factor applied to the limit when the daemon is slow.
	lessen = 2. / 3
)

func newPace(most int) *pace { return &pace{most: float64(most), limit: float64(most)} }

// recordAnswer records how long the daemon took.
func (p *pace) recordAnswer(took time.Duration) {
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

// recordEnd records the end of a start.
func (p *pace) recordEnd() {
	p.rest--
	switch {
	case !p.slow():
		p.limit = min(p.most, p.limit+1/p.limit)
	case p.rest <= 0:
		p.limit = max(1, p.limit*lessen)
		p.rest = int(math.Ceil(p.limit))
	}
}

// slots returns how many sandboxes may start at once.
func (p *pace) slots() int { return int(p.limit) }

// admission limits how many sandboxes start and exist at once.
type admission struct {
	mu       sync.Mutex
	pace     *pace
	starting int
	there    int
	most     int // maximum of there; 0 means no limit
	queue    []chan struct{}
}

func newAdmission(starting, there int) *admission {
	if starting == 0 {
		starting = startsPerCore * runtime.GOMAXPROCS(0)
	}
	return &admission{pace: newPace(starting), most: there}
}

// startsPerCore is how many sandboxes start at once per core if the options set no limit.
const startsPerCore = 2

// enter waits until a sandbox may start. After enter returns nil, the caller must call started once, and left once the
// sandbox is gone.
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
			a.admit() // this waiter may have blocked the queue
			return ctx.Err()
		}
	}
	a.starting-- // admitted just before ctx ended
	a.there--
	a.admit()
	return ctx.Err()
}

// admit admits waiters while the limits allow it. The caller holds a.mu.
func (a *admission) admit() {
	for len(a.queue) > 0 && a.starting < a.pace.slots() && (a.most == 0 || a.there < a.most) {
		close(a.queue[0])
		a.queue = a.queue[1:]
		a.starting++
		a.there++
	}
}

// releaseStart releases a slot for a starting sandbox.
func (a *admission) releaseStart() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pace.recordEnd()
	a.starting--
	a.admit()
}

// releaseSandbox releases a slot for an existing sandbox.
func (a *admission) releaseSandbox() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.there--
	a.admit()
}

// recordAnswer records how long the daemon took to answer a request that it serves from memory.
func (a *admission) recordAnswer(took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pace.recordAnswer(took)
}

// checkAdmission rejects negative limits.
func (o Options) checkAdmission() error {
	if o.MaxStarting >= 0 && o.MaxRunning >= 0 {
		return nil
	}
	return &fumehood.Error{Op: "connect", Class: fumehood.ErrConfig, Err: errors.New("MaxStarting and MaxRunning must not be negative"), Hint: "0 means the default"}
}
