package task

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/alike"
	"github.com/fumehood/fumehood/provider"
)

// group holds the samples that need the same images.
type group struct {
	spec    fumehood.Spec // of the first sample
	samples []string
	images  map[string]string // by service; set when prepared
}

// sandboxOf identifies a sandbox of a sample: its own, or one of its Others.
type sandboxOf struct {
	sample string
	other  int // own, or an index into Others
}

const own = -1

// preparing is how many groups are prepared concurrently. Most of the time is spent waiting for registries or the
// daemon.
const preparing = 4

// prepare lets the provider pull and build the images of all samples. From then on, sandboxes run exactly these
// images. No image is built or pulled later, when code of samples has run.
func (t *Task) prepare(ctx context.Context) error {
	p, ok := t.opts.Provider.(provider.Preparer)
	if !ok {
		return nil
	}
	began := time.Now()
	groups, groupOf, err := t.group(ctx, p)
	if err != nil {
		return err
	}
	err = each(ctx, len(groups), preparing, func(ctx context.Context, i int) error {
		images, err := p.Prepare(ctx, groups[i].spec, provider.PrepareOptions{Exclude: t.opts.Exclude(groups[i].samples)})
		if err != nil {
			return fmt.Errorf("%s: %w", groups[i], err)
		}
		groups[i].images = images
		return nil
	})
	if err == nil {
		t.groups = groupOf
		t.log.Info("the images of all samples are ready", "task", t.opts.Name, "samples", len(t.opts.Samples), "kinds", len(groups), "took", time.Since(began).Round(time.Millisecond))
	}
	return err
}

// group groups the samples by the images that they need, in order of first occurrence.
func (t *Task) group(ctx context.Context, p provider.Preparer) (groups []*group, groupOf map[sandboxOf]*group, err error) {
	type sandbox struct {
		sandboxOf
		key  string
		spec fumehood.Spec
	}
	var all []sandbox
	for i := range t.opts.Samples {
		s := &t.opts.Samples[i]
		spec, err := t.spec(s, 1)
		if err != nil {
			return nil, nil, fmt.Errorf("sample %q: %w", s.ID, err)
		}
		all = append(all, sandbox{sandboxOf: sandboxOf{s.ID, own}, spec: spec})
		for i, other := range s.Others {
			all = append(all, sandbox{sandboxOf: sandboxOf{s.ID, i}, spec: other})
		}
	}
	wrong := make([]error, len(all))
	err = each(ctx, len(all), runtime.GOMAXPROCS(0), func(ctx context.Context, i int) (err error) {
		if all[i].key, err = p.ImageKey(ctx, all[i].spec); err != nil {
			err = &sampleError{all[i].sample, err}
		}
		if errors.Is(err, fumehood.ErrConfig) { // the other samples are checked as well
			wrong[i], err = err, nil
		}
		return err
	})
	if err == nil {
		err = joinWrong(wrong)
	}
	if err != nil {
		return nil, nil, err
	}
	groupOf = map[sandboxOf]*group{}
	byKey := map[string]*group{}
	for _, one := range all {
		g := byKey[one.key]
		if g == nil {
			g = &group{spec: one.spec}
			byKey[one.key] = g
			groups = append(groups, g)
		}
		groupOf[one.sandboxOf] = g
		if !slices.Contains(g.samples[max(0, len(g.samples)-1):], one.sample) { // a sample may need the same images twice
			g.samples = append(g.samples, one.sample)
		}
	}
	return groups, groupOf, nil
}

// sampleError is an error of a sample.
type sampleError struct {
	id  string
	err error
}

func (e *sampleError) Error() string { return fmt.Sprintf("sample %q: %v", e.id, e.err) }
func (e *sampleError) Unwrap() error { return e.err }

// joinWrong joins the errors of samples. Nil entries are ignored.
func joinWrong(errs []error) error {
	var all alike.Errors
	for _, err := range errs {
		if e, ok := errors.AsType[*sampleError](err); ok {
			all.Add(fmt.Sprintf("sample %q", e.id), e.err, e)
		}
	}
	return all.Join()
}

// images returns the images of a sandbox, or nil if nothing is prepared.
func (t *Task) images(key sandboxOf) map[string]string {
	if g := t.groups[key]; g != nil {
		return g.images
	}
	return nil
}

// String returns the IDs of some of the samples, for error messages.
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

// each calls f for 0 to n-1, at most atOnce at a time. It cancels the others on the first error and returns it.
func each(ctx context.Context, n, atOnce int, f func(ctx context.Context, i int) error) error {
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(atOnce)
	for i := range n {
		calls.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f(ctx, i)
		})
	}
	return calls.Wait()
}
