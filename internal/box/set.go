package box

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

// errClosed is the cause of a start that ends because its provider is closed.
var errClosed = errors.New("the provider is closed")

// Closed returns the error of a start whose provider is closed, before the start or during it.
func Closed() error {
	return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrUnavailable, Err: errClosed}
}

// IsClosed reports whether a context of Begin has ended because the provider was closed.
func IsClosed(ctx context.Context) bool {
	return context.Cause(ctx) == errClosed //nolint:errorlint // the cause itself: the caller has canceled nothing
}

// Set holds the sandboxes that a provider starts or has open; B is their backend. The zero value is empty. Its methods may
// be called by multiple goroutines concurrently.
type Set[B any] struct {
	// AtOnce is how many sandboxes Close closes at once; 0 means all.
	AtOnce int

	mu     sync.Mutex
	closed bool
	places map[*Place[B]]bool
}

// Place is the place of a sandbox in a Set.
type Place[B any] struct {
	set     *Set[B]
	name    string
	giveUp  context.CancelCauseFunc // ends the start
	settled chan struct{}           // closed when the start has ended
	backend B
	close   func(context.Context) error // nil before Hold
}

// Begin takes a place for a sandbox whose start begins. Settle must be called when the start has ended. The context ends at
// Settle, or when the set is closed. If the set is closed already, the error is that of Closed. A name that another place
// has is an ErrConfig; an empty name is not compared.
func (s *Set[B]) Begin(ctx context.Context, name string) (context.Context, *Place[B], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, Closed()
	}
	for other := range s.places {
		if name != "" && other.name == name {
			return nil, nil, &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrConfig, Err: fmt.Errorf("this provider has a sandbox %s already", name)}
		}
	}
	if s.places == nil {
		s.places = map[*Place[B]]bool{}
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	p := &Place[B]{set: s, name: name, giveUp: giveUp, settled: make(chan struct{})}
	s.places[p] = true
	return ctx, p, nil
}

// Hold sets what has the place, and how Close closes it. It is called before anything is made that Close must remove, and
// may be called again.
func (p *Place[B]) Hold(backend B, closes func(context.Context) error) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.backend, p.close = backend, closes
}

// Settle ends the start. If nothing has the place, it is given back.
func (p *Place[B]) Settle() {
	p.giveUp(nil)
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	if p.close == nil {
		delete(p.set.places, p)
	}
	close(p.settled)
}

// Leave gives the place back. It reports whether this is the first call. A nil place has nothing to give back.
func (p *Place[B]) Leave() (first bool) {
	if p == nil {
		return false
	}
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	first = p.set.places[p]
	delete(p.set.places, p)
	return first
}

// All returns the backends that have a place.
func (s *Set[B]) All() iter.Seq[B] {
	return func(yield func(B) bool) {
		s.mu.Lock()
		var all []B
		for p := range s.places {
			if p.close != nil {
				all = append(all, p.backend)
			}
		}
		s.mu.Unlock()
		for _, b := range all {
			if !yield(b) {
				return
			}
		}
	}
}

// Close ends starts and refuses further ones, waits for them until ctx ends, and closes what has a place. Another call tries
// again what is left.
func (s *Set[B]) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	places := slices.Collect(maps.Keys(s.places))
	s.mu.Unlock()
	for _, p := range places {
		p.giveUp(errClosed)
	}
	began, errs, slots := time.Now(), make([]error, len(places)), make(chan struct{}, cmp.Or(s.AtOnce, len(places)))
	var all sync.WaitGroup
	for i, p := range places {
		all.Go(func() {
			if errs[i] = p.settle(ctx, began); errs[i] != nil {
				return
			}
			slots <- struct{}{}
			defer func() { <-slots }()
			s.mu.Lock()
			closes := p.close
			s.mu.Unlock()
			if closes != nil {
				errs[i] = closes(ctx)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// settle waits until the start has ended. What it makes after a removal would not be found.
func (p *Place[B]) settle(ctx context.Context, began time.Time) error {
	select {
	case <-p.settled:
		return nil
	default:
	}
	select {
	case <-p.settled:
		return nil
	case <-ctx.Done():
		return &fumehood.Error{
			Op: "remove sandbox " + p.name, Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("its start did not end within %v", time.Since(began).Round(time.Millisecond)),
			Hint: "it is removed when the start ends, or by `fumehood cleanup` when this process has ended",
		}
	}
}
