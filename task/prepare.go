package task

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

// group are samples that need the same images.
type group struct {
	spec    fumehood.Spec // of the first
	samples []string
}

// preparing is how many groups are prepared at once. What is slow there waits for registries, or is the daemon's.
const preparing = 4

// prepare has the provider get what the samples need.
func (t *Task) prepare(ctx context.Context) error {
	p, ok := t.opts.Provider.(fumehood.Preparer)
	if !ok {
		return nil
	}
	began := time.Now()
	groups, err := t.group(ctx, p)
	if err != nil {
		return err
	}
	err = each(ctx, len(groups), preparing, func(ctx context.Context, i int) error {
		if err := p.Prepare(ctx, groups[i].spec); err != nil {
			return fmt.Errorf("%s: %w", groups[i], err)
		}
		return nil
	})
	if err == nil {
		t.log.Info("the images of all samples are there", "task", t.opts.Name, "samples", len(t.opts.Samples), "kinds", len(groups), "took", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// group sorts the samples by the images that they need, in the order in which the first of each is met.
func (t *Task) group(ctx context.Context, p fumehood.Preparer) ([]*group, error) {
	type sandbox struct {
		sample, key string
		spec        fumehood.Spec
	}
	var all []sandbox
	for i := range t.opts.Samples {
		s := &t.opts.Samples[i]
		what, err := t.spec(s, 1)
		if err != nil {
			return nil, fmt.Errorf("sample %q: %w", s.ID, err)
		}
		all = append(all, sandbox{sample: s.ID, spec: what})
		for _, other := range s.Others {
			all = append(all, sandbox{sample: s.ID, spec: other})
		}
	}
	err := each(ctx, len(all), runtime.GOMAXPROCS(0), func(ctx context.Context, i int) (err error) {
		if all[i].key, err = p.Needs(ctx, all[i].spec); err != nil {
			return fmt.Errorf("sample %q: %w", all[i].sample, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var groups []*group
	byKey := map[string]*group{}
	for _, one := range all {
		g := byKey[one.key]
		if g == nil {
			g = &group{spec: one.spec}
			byKey[one.key] = g
			groups = append(groups, g)
		}
		if !slices.Contains(g.samples[max(0, len(g.samples)-1):], one.sample) { // it has not the same for both of its own
			g.samples = append(g.samples, one.sample)
		}
	}
	return groups, nil
}

// String names the samples, or some of them.
func (g *group) String() string {
	const most = 3
	var ids []string
	for _, id := range g.samples[:min(most, len(g.samples))] {
		ids = append(ids, fmt.Sprintf("%q", id))
	}
	text := "sample " + strings.Join(ids, ", ")
	if more := len(g.samples) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// each calls f for 0 to n-1, so many at a time. The first error ends the others, and is returned.
func each(ctx context.Context, n, atOnce int, f func(ctx context.Context, i int) error) error {
	of, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-of.Done():
		}
		if of.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(of, i); err != nil {
				cancel(err) // the first one counts
			}
		})
	}
	wg.Wait()
	return context.Cause(of)
}
