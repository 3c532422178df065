package sweep

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

// Removal is how objects are removed. It holds no decisions.
type Removal struct {
	// Remove removes the object of the plan's entry i. One that is gone already is no error.
	Remove func(ctx context.Context, i int) error
	// AtOnce is how many objects of a kind are removed at once. Less than 1 means 1.
	AtOnce int
	// Pauses come before an object that was refused is tried again. Empty means that it is tried once.
	Pauses []time.Duration
}

// Carry removes what the plan says, and writes into it how that went: one kind after the other, in the order in which
// the plan has them, for what uses others comes first. A cache that is in use stays, which is no error. When ctx has
// ended it begins with no other, which is an ErrCancelled.
func (r Removal) Carry(ctx context.Context, plan []fumehood.Leftover) error {
	var errs []error
	for begin := 0; begin < len(plan); {
		end := begin + 1
		for end < len(plan) && plan[end].Kind == plan[begin].Kind {
			end++
		}
		errs = append(errs, r.carry(ctx, plan, begin, end)...)
		begin = end
	}
	if ctx.Err() != nil && slices.ContainsFunc(plan, func(l fumehood.Leftover) bool { return l.Remove && !l.Removed && l.Err == nil }) {
		errs = append(errs, &fumehood.Error{Op: "clean up", Class: fumehood.ErrCancelled, Err: context.Cause(ctx)})
	}
	return errors.Join(errs...)
}

// carry removes the plan's entries of one kind, from begin to before end.
func (r Removal) carry(ctx context.Context, plan []fumehood.Leftover, begin, end int) []error {
	errs := make([]error, end-begin)
	slots := make(chan struct{}, max(r.AtOnce, 1))
	var wg sync.WaitGroup
	for i := begin; i < end; i++ {
		if !plan[i].Remove {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			l := &plan[i]
			switch err := r.insist(ctx, l.Cache, i); {
			case err == nil:
				l.Removed = true
			case l.Cache && errors.Is(err, fumehood.ErrUnavailable):
				l.Remove, l.Reason = false, "a cache in use"
			default:
				l.Err, errs[i-begin] = err, err
			}
		})
	}
	wg.Wait()
	return errs
}

// insist removes one object, and tries again what was refused, but for a cache that is in use.
func (r Removal) insist(ctx context.Context, cache bool, i int) error {
	for _, pause := range r.Pauses {
		err := r.Remove(ctx, i)
		if err == nil || cache && errors.Is(err, fumehood.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
	return r.Remove(ctx, i)
}
