package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
)

const (
	// listPause is the default of Discovery.Every.
	listPause = 5 * time.Second
	// listTime bounds the wait for a Discovery.
	listTime = 5 * time.Second
)

// Discovery finds workers that come and go, such as the Pods of a StatefulSet.
type Discovery struct {
	// Name names the workers in messages, such as kubernetes:fumehood.
	Name string
	// Flags are those by which the command line finds the same workers. Connections of kept sandboxes have them.
	Flags []string
	// List returns the addresses of all workers that may get sandboxes now, as in Options.URLs. A call that needs workers
	// calls it if the last answer is older than Every, and waits 5 seconds at most. One call runs at a time.
	List func(ctx context.Context) ([]string, error)
	// Every is how long an answer of List is used. 0 means 5 seconds.
	Every time.Duration
}

// now returns the workers that may get sandboxes. If a Discovery fails, they are those of its last answer, with a warning, and
// without one its error.
func (p *Provider) now(ctx context.Context) ([]*worker, error) {
	p.finding.Lock()
	defer p.finding.Unlock()
	d := p.opts.Discover
	if d == nil || !p.listed.IsZero() && time.Since(p.listed) < cmp.Or(d.Every, listPause) {
		return p.workers, p.listError
	}
	found, err := p.list(ctx, d)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	p.listed = time.Now()
	switch {
	case err == nil:
		p.workers, p.listError, p.answered = found, nil, true
	case p.answered:
		p.log.Warn("workers are not discovered: those of the last answer are used", "workers", d.Name, "error", err)
	default:
		p.listError = &fumehood.Error{Class: classOf(err), Err: fmt.Errorf("discover workers of %s: %w", d.Name, err)}
	}
	return p.workers, p.listError
}

// classOf returns the class of an error, by default ErrUnavailable.
func classOf(err error) error {
	if class := fumehood.ClassOf(err); class != nil {
		return class
	}
	return fumehood.ErrUnavailable
}

// list asks a Discovery. Workers that it has named before stay the same, with their leases. The caller holds p.finding.
func (p *Provider) list(ctx context.Context, d *Discovery) (found []*worker, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	urls, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(urls)
	for _, url := range slices.Compact(urls) {
		w := p.known[url]
		if w == nil {
			if w, err = newWorker(url, &p.opts); err != nil {
				return nil, err
			}
			p.known[url] = w
		}
		found = append(found, w)
	}
	return found, nil
}

// ready is now, and an ErrUnavailable if there is no worker.
func (p *Provider) ready(ctx context.Context) ([]*worker, error) {
	all, err := p.now(ctx)
	if err == nil && len(all) == 0 {
		err = p.noWorkers()
	}
	return all, err
}

// reachable returns the workers that may get sandboxes, and those that get none any more but may have some of this provider.
func (p *Provider) reachable(ctx context.Context) ([]*worker, error) {
	all, err := p.now(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	for _, w := range p.everKnown() {
		w.mu.Lock()
		leased := w.lease != nil
		w.mu.Unlock()
		if leased && !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	if len(all) == 0 {
		return nil, p.noWorkers()
	}
	return all, nil
}

// everKnown returns all workers that this provider may have used.
func (p *Provider) everKnown() []*worker {
	p.finding.Lock()
	defer p.finding.Unlock()
	all := slices.Clone(p.workers)
	for _, w := range p.known {
		if !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all
}

// noWorkers returns the error of a Discovery that has found no worker.
func (p *Provider) noWorkers() error {
	err := errors.New("no worker is ready")
	if d := p.opts.Discover; d != nil {
		err = fmt.Errorf("no worker of %s is ready", d.Name)
	}
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: err}
}
