package image

import (
	"context"
	"sync"

	"github.com/fumehood/fumehood"
)

// Flights merges concurrent calls for the same key into one. Unlike x/sync/singleflight, the merged call has its own
// context, which is canceled when the last caller leaves. Canceling one sandbox must not break the pull that 49 others
// wait for, and a pull without waiters must stop.
type Flights struct {
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

// Share runs f once for all concurrent callers with the same key. A caller whose ctx ends stops waiting. f continues
// for the others; its context is canceled only when no caller waits any more, and the last one waits until f has ended.
func Share[T any](ctx context.Context, g *Flights, key string, f func(context.Context) (T, error)) (T, error) {
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
		fl.wait--
		last := fl.wait == 0
		if last {
			fl.cancel()
			g.forget(key, fl) // a later caller starts its own call rather than join a canceled one
		}
		g.mu.Unlock()
		if last {
			<-fl.done // f may have to clean up
		}
	}()
	select {
	case <-fl.done:
		value, _ := fl.value.(T)
		return value, fl.err
	case <-ctx.Done():
		var none T
		return none, fumehood.Cause(ctx)
	}
}

// forget stops later callers from joining the flight. The caller holds the lock.
func (g *Flights) forget(key string, fl *flight) {
	if g.all[key] == fl {
		delete(g.all, key)
	}
}
