package docker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
)

func TestPace_followsDaemon(t *testing.T) {
	const calm, slow = 2 * time.Millisecond, 400 * time.Millisecond
	for name, c := range map[string]struct {
		most    int
		answers []time.Duration // repeated between two ends of a start
		starts  int
		slots   int
	}{
		"calm":                          {8, []time.Duration{calm, calm}, 50, 8},
		"slow":                          {8, []time.Duration{slow, slow, slow, slow}, 50, 1},
		"one slow answer":               {8, []time.Duration{calm, calm, calm, calm, calm, calm, calm, calm, calm, 3 * calm}, 50, 8},
		"slower than calm, and no more": {8, []time.Duration{calm, 10 * calm, 10 * calm, 10 * calm}, 50, 8}, // below slowFloor
		"nothing was asked":             {3, nil, 50, 3},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPace(c.most)
			for range 20 { // determines calm
				p.recordAnswer(calm)
			}
			for range c.starts {
				for _, took := range c.answers {
					p.recordAnswer(took)
				}
				p.recordEnd()
			}
			if got := p.slots(); got != c.slots {
				t.Errorf("%d may start, want %d (%+v)", got, c.slots, *p)
			}
		})
	}
}

func TestPace_recovers(t *testing.T) {
	p := newPace(6)
	for range 20 {
		p.recordAnswer(time.Millisecond)
	}
	var seen []int
	note := func() {
		if n := p.slots(); len(seen) == 0 || seen[len(seen)-1] != n {
			seen = append(seen, n)
		}
	}
	for range 20 {
		p.recordAnswer(time.Second)
		p.recordEnd()
		note()
	}
	if p.slots() != 1 {
		t.Errorf("limit is %d while the daemon is slow, after %v", p.slots(), seen)
	}
	for range 100 {
		p.recordAnswer(time.Millisecond)
		p.recordEnd()
		note()
	}
	if fmt.Sprint(seen) != "[4 2 1 2 3 4 5 6]" {
		t.Errorf("it went by %v", seen)
	}
}

func TestPace_calmSpan(t *testing.T) {
	p := newPace(4)
	p.recordAnswer(time.Millisecond)
	for range calmSpan - 1 {
		p.recordAnswer(time.Second)
	}
	if p.recordEnd(); p.slots() == 4 {
		t.Error("a second counts as calm")
	}
	for range calmSpan { // a whole slow span, for example because the daemon's machine has changed
		p.recordAnswer(time.Second)
	}
	if p.slow() {
		t.Error("the pace never becomes calm again")
	}
}

func TestAdmission_orderAndLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(2, 3)
		var starting, there, mostStarting, mostThere atomic.Int64
		order := make(chan int, 10)
		for i := range 10 {
			go func() {
				if err := a.enter(t.Context()); err != nil {
					t.Error(err)
				}
				order <- i
				mostStarting.Store(max(mostStarting.Load(), starting.Add(1)))
				mostThere.Store(max(mostThere.Load(), there.Add(1)))
				// No two of them end at the same time: the order in which two concurrently admitted callers continue is
				// up to the scheduler.
				time.Sleep(time.Second + time.Duration(i)*time.Millisecond) //nolint:forbidigo // of the bubble's clock
				starting.Add(-1)
				a.releaseStart()
				time.Sleep(10 * time.Second) //nolint:forbidigo // likewise
				there.Add(-1)
				a.releaseSandbox()
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute) //nolint:forbidigo // likewise
		for i := range 10 {
			if got := <-order; got != i {
				t.Errorf("number %d was admitted as number %d", got, i)
			}
		}
		if s, n := mostStarting.Load(), mostThere.Load(); s != 2 || n != 3 {
			t.Errorf("%d started at once and %d existed, want 2 and 3", s, n)
		}
	})
}

func TestAdmission_givesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, 1)
		if err := a.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		a.releaseStart()
		a.releaseSandbox()
		if err := a.enter(t.Context()); err != nil || a.starting != 1 || a.there != 1 || len(a.queue) != 0 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

func TestOptions_negativeLimits(t *testing.T) {
	for _, o := range []Options{{MaxStarting: -1}, {MaxRunning: -1}} {
		if _, err := New(t.Context(), o); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%+v: got %v, want an ErrConfig", o, err)
		}
	}
}
