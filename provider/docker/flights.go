package docker

import (
	"context"
	"sync"
)

// flights joins callers that want the same thing at the same time to one call. Unlike
// x/sync/singleflight, the call has a context of its own, which ends when its last caller has left: one
// sandbox that is cancelled must not break the pull that 49 others wait for, and a pull that nobody waits
// for must end.
type flights struct {
	mu  sync.Mutex
	all map[string]*flight
}

type flight struct {
	done   chan struct{}
	value  any
	err    error
	cancel context.CancelFunc
	wait   int
}

// join returns the flight for key, started if there is none. The caller calls leave once.
func (g *flights) join(ctx context.Context, key string, f func(context.Context) (any, error)) (fl *flight, leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fl = g.all[key]
	if fl == nil {
		fctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		fl = &flight{done: make(chan struct{}), cancel: cancel}
		if g.all == nil {
			g.all = map[string]*flight{}
		}
		g.all[key] = fl
		go func() {
			fl.value, fl.err = f(fctx)
			g.mu.Lock()
			if g.all[key] == fl {
				delete(g.all, key)
			}
			g.mu.Unlock()
			cancel()
			close(fl.done)
		}()
	}
	fl.wait++
	return fl, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if fl.wait--; fl.wait == 0 {
			fl.cancel()
			if g.all[key] == fl {
				delete(g.all, key) // who comes now starts a call of its own rather than join a call that was given up
			}
		}
	}
}
