package box

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

// errClosed is the cause of a start that ends because its provider is closed.
var errClosed = errors.New("the provider is closed")

// ClosedError returns the error of a start whose provider is closed, before the start or during it.
func ClosedError() error {
	return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrUnavailable, Err: errClosed}
}

// IsClosed reports whether a context of Begin has ended because the provider was closed.
func IsClosed(ctx context.Context) bool {
	return context.Cause(ctx) == errClosed //nolint:errorlint // the cause itself: the caller has canceled nothing
}

// Set holds the sandboxes that a provider starts or has open. The zero value is empty. Its methods may
// be called by multiple goroutines concurrently.
type Set struct {
	// AtOnce is how many sandboxes Close closes at once; 0 means all.
	AtOnce int

	mu     sync.Mutex
	closed bool
	places map[*Place]bool
}

// Place is the place of a sandbox in a Set.
type Place struct {
	set     *Set
	name    string
	giveUp  context.CancelCauseFunc     // ends the start
	settled chan struct{}               // closed when the start has ended
	close   func(context.Context) error // nil before Hold
}

// Begin takes a place for a sandbox whose start begins. Settle must be called when the start has ended. The context ends at
// Settle, or when the set is closed. If the set is closed already, the error is that of ClosedError. A name that another place
// has is an ErrConfig; an empty name is not compared.
func (s *Set) Begin(ctx context.Context, name string) (context.Context, *Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ClosedError()
	}
	for other := range s.places {
		if name != "" && other.name == name {
			return nil, nil, &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrConfig, Err: fmt.Errorf("this provider has a sandbox %s already", name), Hint: "choose another name, or close that sandbox"}
		}
	}
	if s.places == nil {
		s.places = map[*Place]bool{}
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	p := &Place{set: s, name: name, giveUp: giveUp, settled: make(chan struct{})}
	s.places[p] = true
	return ctx, p, nil
}

// Hold sets how Close closes what has the place. It is called before anything is made that Close must remove, and may be
// called again.
func (p *Place) Hold(closes func(context.Context) error) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.close = closes
}

// Settle ends the start. If nothing has the place, it is given back.
func (p *Place) Settle() {
	p.giveUp(nil)
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	if p.close == nil {
		delete(p.set.places, p)
	}
	close(p.settled)
}

// Leave gives the place back. It reports whether this is the first call. A nil place has nothing to give back.
func (p *Place) Leave() (first bool) {
	if p == nil {
		return false
	}
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	first = p.set.places[p]
	delete(p.set.places, p)
	return first
}

// Close ends starts and refuses further ones, waits for them until ctx ends, and closes what has a place. Another call tries
// again what is left.
func (s *Set) Close(ctx context.Context) error {
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
func (p *Place) settle(ctx context.Context, began time.Time) error {
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
