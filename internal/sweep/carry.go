package sweep

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// groupWait is how long an object waits for the removal of the one before it in its group.
const groupWait = 5 * time.Second

// Removal is how objects are removed. It holds no decisions.
type Removal struct {
	// Remove removes the object of the plan's entry i. One that is gone already is no error.
	Remove func(ctx context.Context, i int) error
	// AtOnce is how many objects of a kind are removed at once. Less than 1 means 1.
	AtOnce int
	// Group names the group of the plan's entry i. The objects of a group are removed one after the other; after 5 s the next
	// one doesn't wait any longer. An entry with an empty name is in no group. Nil means that there are no groups.
	Group func(i int) string
	// Pauses come before an object that was refused is tried again. Empty means that it is tried once.
	Pauses []time.Duration
}

// Carry removes what the plan says, and writes into it how that went: one kind after the other, in the order in which
// the plan has them, for what uses others comes first. A cache that is in use stays, which is no error. When ctx has
// ended it begins with no other, which is an ErrCancelled.
func (r Removal) Carry(ctx context.Context, plan []provider.Leftover) error {
	var errs []error
	for begin := 0; begin < len(plan); {
		end := begin + 1
		for end < len(plan) && plan[end].Kind == plan[begin].Kind {
			end++
		}
		errs = append(errs, r.carry(ctx, plan, begin, end)...)
		begin = end
	}
	if ctx.Err() != nil && slices.ContainsFunc(plan, func(l provider.Leftover) bool { return l.Remove && !l.Removed && l.Err == nil }) {
		errs = append(errs, &fumehood.Error{Op: "clean up", Class: fumehood.ErrCancelled, Err: fumehood.Ended(ctx)})
	}
	return errors.Join(errs...)
}

// carry removes the plan's entries of one kind, from begin to before end.
func (r Removal) carry(ctx context.Context, plan []provider.Leftover, begin, end int) []error {
	errs := make([]error, end-begin)
	slots := make(chan struct{}, max(r.AtOnce, 1))
	var wg sync.WaitGroup
	for _, group := range r.groups(plan, begin, end) {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, i := range group {
				if ctx.Err() != nil {
					return
				}
				ended := make(chan struct{})
				wg.Go(func() {
					defer close(ended)
					errs[i-begin] = r.removeOne(ctx, &plan[i], i)
				})
				select {
				case <-ended:
				case <-time.After(groupWait):
				}
			}
		})
	}
	wg.Wait()
	return errs
}

// groups returns the entries that are to be removed, from begin to before end, with those of a group together.
func (r Removal) groups(plan []provider.Leftover, begin, end int) [][]int {
	var groups [][]int
	known := map[string]int{}
	for i := begin; i < end; i++ {
		if !plan[i].Remove {
			continue
		}
		name := ""
		if r.Group != nil {
			name = r.Group(i)
		}
		if at, ok := known[name]; ok && name != "" {
			groups[at] = append(groups[at], i)
			continue
		}
		known[name] = len(groups)
		groups = append(groups, []int{i})
	}
	return groups
}

// removeOne removes the object of the plan's entry i, which is l, and writes into it how that went.
func (r Removal) removeOne(ctx context.Context, l *provider.Leftover, i int) error {
	switch err := r.insist(ctx, l.Cache, i); {
	case err == nil:
		l.Removed = true
	case l.Cache && errors.Is(err, fumehood.ErrUnavailable):
		l.Remove, l.Reason = false, "a cache in use"
	default:
		l.Err = err
	}
	return l.Err
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
