package workers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

const (
	// statusTime bounds the wait for a worker's status.
	statusTime = 3 * time.Second
	// skipTime is how long a worker is not asked that did not answer.
	skipTime = 5 * time.Second
)

// candidate is a worker that may get a sandbox.
type candidate struct {
	*worker
	api.Status
}

// pullCost is how many more sandboxes for each processor a worker that has the image may have than one that has to pull it.
const pullCost = 2

// load returns how many sandboxes a processor of the worker has, with those that are on their way there, and pullCost if it lacks
// the image.
func (c *candidate) load() float64 {
	load := float64(c.Sandboxes+c.Starting+c.pending) / float64(max(c.CPUs, 1))
	if !c.HasImage {
		load += pullCost
	}
	return load
}

// full returns why the worker can get no sandbox, or nil.
func (c *candidate) full() error {
	switch {
	case c.Draining:
		return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("it is about to end")}
	case c.Sandboxes+c.Starting >= c.MaxSandboxes:
		return &fumehood.Error{Class: fumehood.ErrLimit, Err: fmt.Errorf("it has %d sandboxes, of %d", c.Sandboxes+c.Starting, c.MaxSandboxes)}
	}
	return nil
}

// refused are the reasons why workers have no place for a sandbox.
type refused struct {
	names []string
	errs  []error
}

func (r *refused) add(w *worker, err error) {
	r.names, r.errs = append(r.names, w.name), append(r.errs, err)
}

// error returns the error of a start that no worker has taken. It is an ErrLimit if each one that answers is full.
func (r *refused) error() error {
	class := fumehood.ErrUnavailable
	var lines []string
	for i, err := range r.errs {
		if errors.Is(err, fumehood.ErrLimit) {
			class = fumehood.ErrLimit
		}
		lines = append(lines, r.names[i]+": "+strings.TrimPrefix(err.Error(), "worker "+r.names[i]+": "))
	}
	return &fumehood.Error{Class: class, Err: errors.New("no worker takes the sandbox: " + strings.Join(lines, "; "))}
}

// place calls start with the worker that fits a sandbox best, and then with the next ones while a worker is lost, full or
// about to end. It returns the error of the last call if that says more than that.
func (p *Provider) place(ctx context.Context, spec *fumehood.Spec, start func(context.Context, *worker) error) error {
	workers, err := p.now(ctx)
	if err != nil {
		return err
	}
	if len(workers) == 0 {
		return p.noWorkers()
	}
	all, no := candidates(ctx, workers, spec.Image)
	for len(all) > 0 {
		c := p.take(&all)
		err := start(ctx, c.worker)
		p.mu.Lock()
		c.pending--
		p.mu.Unlock()
		if err == nil || ctx.Err() != nil || !c.mayGoOn(spec, err) {
			return err
		}
		no.add(c.worker, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return no.error()
}

// mayGoOn reports whether another worker may get the sandbox that this one did not start.
func (w *worker) mayGoOn(spec *fumehood.Spec, err error) bool {
	if lost, ok := asLost(err); ok {
		w.avoid(err)
		return !lost.sent || !spec.Keep // a kept sandbox may exist
	}
	r, ok := errors.AsType[*refusal](err)
	return ok && (r.status == http.StatusServiceUnavailable || r.answer.Flag == "max-sandboxes" || isStale(err))
}

// candidates asks workers for their status, and returns those that can take a sandbox.
func candidates(ctx context.Context, workers []*worker, image string) (all []*candidate, no refused) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, w := range workers {
		asking.Go(func() {
			c := &candidate{worker: w}
			err := w.skipReason()
			if err == nil {
				if c.Status, err = w.status(ctx, image); err != nil && ctx.Err() == nil {
					w.avoid(err)
				}
			}
			if err == nil {
				err = c.full()
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				no.add(w, err)
				return
			}
			all = append(all, c)
		})
	}
	asking.Wait()
	return all, no
}

// take removes the best candidate and counts a start there: the one with the lowest load, then with the most memory.
func (p *Provider) take(all *[]*candidate) *candidate {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := slices.MinFunc(*all, func(a, b *candidate) int {
		if a.load() != b.load() {
			return order(a.load() < b.load())
		}
		return order(a.MemoryAvailable >= b.MemoryAvailable)
	})
	*all = slices.DeleteFunc(*all, func(c *candidate) bool { return c == best })
	best.pending++
	return best
}

func order(first bool) int {
	if first {
		return -1
	}
	return 1
}

// status asks the worker for its status, once.
func (w *worker) status(ctx context.Context, image string) (st api.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	query := url.Values{}
	if image != "" {
		query.Set("image", image)
	}
	err = w.call(ctx, &request{method: http.MethodGet, path: "/v1/status", query: query, once: true}, &st)
	if err == nil && st.API != api.Number {
		err = &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("the worker has number %d of the API, not %d", st.API, api.Number), Hint: "use the same version of Fumehood"}
	}
	return st, err
}

// skipReason returns why the worker is not asked for now, or nil.
func (w *worker) skipReason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.skip) {
		return w.why
	}
	return nil
}

// avoid makes the worker get no sandbox for a while.
func (w *worker) avoid(why error) {
	w.log.Warn("a worker does not answer, and gets no sandbox for a while", "worker", w.name, "pause", skipTime, "error", why)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skip, w.why = time.Now().Add(skipTime), why
}
