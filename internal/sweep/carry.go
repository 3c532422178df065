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
	// AtOnce is how many objects of a kind are removed at once. Less than 1 means 1.
	AtOnce int
	// Pauses come before an object that was refused is tried again. Empty means that it is tried once.
	Pauses []time.Duration
}

// All removes all the objects, in the order of their kinds.
func (r Removal) All(ctx context.Context, objects []Object) error {
	plan := make([]provider.Leftover, len(objects))
	for i, o := range objects {
		plan[i] = provider.Leftover{Kind: o.Kind, Name: o.Name, Remove: true}
	}
	return r.Carry(ctx, objects, plan)
}

// Carry removes what the plan for the objects says, and writes into it how that went: one kind after the other, in the
// order in which the plan has them, for what uses others comes first. A cache that is in use stays, which is no error.
// When ctx has ended it begins with no other, which is an ErrCancelled.
func (r Removal) Carry(ctx context.Context, objects []Object, plan []provider.Leftover) error {
	errs := make([]error, len(plan))
	for begin := 0; begin < len(plan); {
		end := begin + 1
		for end < len(plan) && plan[end].Kind == plan[begin].Kind {
			end++
		}
		r.carry(ctx, grouped(objects, plan, begin, end), func(i int) { errs[i] = r.remove(ctx, objects[i], &plan[i]) })
		begin = end
	}
	if ctx.Err() != nil && slices.ContainsFunc(plan, func(l provider.Leftover) bool { return l.Remove && !l.Removed && l.Err == nil }) {
		errs = append(errs, &fumehood.Error{Op: "clean up", Class: fumehood.ErrCancelled, Err: fumehood.Ended(ctx)})
	}
	return errors.Join(errs...)
}

// carry removes the entries of one kind, those of a group one after the other.
func (r Removal) carry(ctx context.Context, groups [][]int, remove func(i int)) {
	slots := make(chan struct{}, max(r.AtOnce, 1))
	var wg sync.WaitGroup
	for _, group := range groups {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, i := range group {
				if ctx.Err() != nil {
					return
				}
				ended := make(chan struct{})
				wg.Go(func() {
					defer close(ended)
					remove(i)
				})
				select {
				case <-ended:
				case <-time.After(groupWait):
				}
			}
		})
	}
	wg.Wait()
}

// grouped returns the entries that are to be removed, from begin to before end, with those of a group together.
func grouped(objects []Object, plan []provider.Leftover, begin, end int) [][]int {
	var groups [][]int
	at := map[string]int{}
	for i := begin; i < end; i++ {
		if !plan[i].Remove {
			continue
		}
		name := objects[i].Group
		n, known := at[name]
		if !known || name == "" {
			n, groups = len(groups), append(groups, nil)
			at[name] = n
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

// remove removes an object, and writes into its entry of the plan how that went. What was refused is tried again, but for a
// cache that is in use.
func (r Removal) remove(ctx context.Context, o Object, l *provider.Leftover) error {
	err := o.Remove(ctx)
	inUse := func() bool { return l.Cache && errors.Is(err, fumehood.ErrUnavailable) }
	for _, pause := range r.Pauses {
		if err == nil || inUse() {
			break
		}
		select {
		case <-time.After(pause):
			err = o.Remove(ctx)
		case <-ctx.Done():
		}
	}
	switch {
	case err == nil:
		l.Removed = true
	case inUse():
		l.Remove, l.Reason = false, "a cache in use"
	default:
		l.Err = err
	}
	return l.Err
}
