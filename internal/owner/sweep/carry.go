package sweep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// groupWait is how long an object waits for the removal of the previous one in its group.
const groupWait = 5 * time.Second

// Removal is how objects are removed. It makes no decisions but Among.
type Removal struct {
	// AtOnce is how many objects of a kind are removed at once. Less than 1 means 1.
	AtOnce int
	// Pauses are the pauses before the retries of a failed removal. Empty means no retries.
	Pauses []time.Duration
	// Among reports whether Run considers an object at all. Nil means all.
	Among func(o Object) bool
}

// Find finds objects and collects the facts for a plan.
type Find func(ctx context.Context) ([]Object, Facts, error)

// Run finds objects, plans, and carries out the plan.
func (r Removal) Run(ctx context.Context, opts provider.CleanupOptions, find Find) ([]provider.Leftover, error) {
	objects, facts, err := find(ctx)
	if err != nil {
		return nil, err
	}
	if r.Among != nil {
		objects = slices.DeleteFunc(objects, func(o Object) bool { return !r.Among(o) })
	}
	plan, err := Plan(objects, facts, opts)
	if err != nil || opts.DryRun {
		return plan, err
	}
	return plan, r.Carry(ctx, objects, plan)
}

// Log logs the results of Run where no user has asked for it. The next sweep tries again what it could not remove.
func Log(ctx context.Context, log *slog.Logger, plan []provider.Leftover, err error) {
	if err != nil && ctx.Err() == nil {
		log.Warn("cannot remove everything that ended processes left; `fumehood cleanup` retries", "error", err)
	}
	for _, l := range plan {
		if l.Removed {
			log.Debug("removed what an ended process left", "kind", l.Kind, "name", l.Name, "reason", l.Reason)
		}
	}
}

// All removes all objects, in the order of their kinds.
func (r Removal) All(ctx context.Context, objects []Object) error {
	plan := make([]provider.Leftover, len(objects))
	for i, o := range objects {
		plan[i] = provider.Leftover{Kind: o.Kind, Name: o.Name, Remove: true}
	}
	return r.Carry(ctx, objects, plan)
}

// Carry removes the objects that the plan marks for removal, and records the results in the plan. It removes one kind
// after the other, in the order of the plan, so that objects come before those that they use. A cache in use stays,
// which is not an error. When ctx ends, Carry starts no further removals and returns an ErrCanceled.
func (r Removal) Carry(ctx context.Context, objects []Object, plan []provider.Leftover) error {
	errs := make([]error, len(plan))
	for begin := 0; begin < len(plan); {
		end := begin + 1
		for end < len(plan) && plan[end].Kind == plan[begin].Kind {
			end++
		}
		r.carry(ctx, groupEntries(objects, plan, begin, end), func(i int) { errs[i] = r.remove(ctx, objects[i], &plan[i]) })
		begin = end
	}
	if ctx.Err() != nil && slices.ContainsFunc(plan, func(l provider.Leftover) bool { return l.Remove && !l.Removed && l.Err == nil }) {
		errs = append(errs, &fumehood.Error{Op: "clean up", Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)})
	}
	return errors.Join(errs...)
}

// carry removes the entries of one kind, and those of a group one after the other.
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

// groupEntries returns the entries to remove, from begin up to but not including end, by group.
func groupEntries(objects []Object, plan []provider.Leftover, begin, end int) [][]int {
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

// remove removes an object and records the result in its entry of the plan. It retries failed removals, except of a
// cache in use.
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
