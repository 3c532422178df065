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

// shared runs f once for all who ask for the same key at the same time. A caller whose ctx ends stops
// waiting; f goes on for the others, and its context ends only when nobody waits any more.
func shared[T any](ctx context.Context, g *flights, key string, f func(context.Context) (T, error)) (T, error) {
	g.mu.Lock()
	fl := g.all[key]
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
			g.forget(key, fl)
			g.mu.Unlock()
			cancel()
			close(fl.done)
		}()
	}
	fl.wait++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if fl.wait--; fl.wait == 0 {
			fl.cancel()
			g.forget(key, fl) // who comes now starts a call of its own rather than join a call that was given up
		}
	}()
	select {
	case <-fl.done:
		value, _ := fl.value.(T)
		return value, fl.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// forget has nobody join the flight any more. The caller holds the lock.
func (g *flights) forget(key string, fl *flight) {
	if g.all[key] == fl {
		delete(g.all, key)
	}
}
