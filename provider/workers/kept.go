package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/jsontext"
	"github.com/fumehood/fumehood/provider"
)

// detached is a detached command of a kept sandbox.
type detached struct {
	*process
	id int
}

func (s *service) newDetached(p *process, number int) *detached {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[number] = strings.TrimPrefix(p.path, "/processes/")
	return &detached{p, number}
}

func (d *detached) ID() int { return d.id }

// Forget drops an ended command. One that is gone is forgotten.
func (d *detached) Forget(ctx context.Context) error {
	err := d.call(ctx, d.request(http.MethodDelete, ""))
	if codeOf(err) == fumehood.CodeUnavailable {
		return nil
	}
	return err
}

// Detached lists the detached commands of a kept sandbox.
func (s *service) Detached(ctx context.Context) ([]provider.DetachedInfo, error) {
	r := s.request(http.MethodGet, "/processes", "")
	r.query.Set("refresh", "true")
	var found struct {
		Processes []api.Process `json:"processes"`
	}
	if err := s.sb.w.call(ctx, r, &found); err != nil {
		return nil, err
	}
	var all []provider.DetachedInfo
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range found.Processes {
		if p.Detached > 0 {
			s.ids[p.Detached] = p.ID
			all = append(all, provider.DetachedInfo{ID: p.Detached, Args: jsontext.Strings(p.Args), Started: p.Started, Ended: p.Ended, Stdin: p.Stdin})
		}
	}
	slices.SortFunc(all, func(a, b provider.DetachedInfo) int { return a.ID - b.ID })
	return all, nil
}

// Join attaches to a command that Detached has listed.
func (s *service) Join(_ context.Context, info provider.DetachedInfo, out provider.Sink) (provider.DetachedBackend, error) {
	s.mu.Lock()
	id := s.ids[info.ID]
	s.mu.Unlock()
	return s.newDetached(s.newProcess(id, true, info.Stdin, out), info.ID), nil
}

// Open opens a kept sandbox, on whichever worker it is.
func (p *Provider) Open(ctx context.Context, name string) (fumehood.Sandbox, error) {
	opening, place, err := p.open.Begin(ctx, "")
	if err != nil {
		return nil, opError("open sandbox", err)
	}
	defer place.Settle()
	w, l, made, err := p.find(opening, name)
	if err != nil {
		return nil, opError("open sandbox "+name, err)
	}
	sb := provider.New(p.newSandbox(w, l, made, place), fumehood.Spec{}, nil)
	place.Hold(sb.Close)
	return sb, nil
}

// opError returns an error with an operation.
func opError(op string, err error) error {
	if err == nil {
		return nil
	}
	class := cmp.Or(fumehood.ClassOf(err), fumehood.ErrInfrastructure)
	if typed, ok := errors.AsType[*fumehood.Error](err); ok && (typed.Op == "" || typed.Op == "start sandbox") {
		return &fumehood.Error{Op: op, Class: class, Err: typed.Err, Hint: typed.Hint}
	}
	return &fumehood.Error{Op: op, Class: class, Err: err}
}

// find finds the worker of a kept sandbox. An unknown name is an ErrConfig.
func (p *Provider) find(ctx context.Context, name string) (*worker, *lease, *api.Sandbox, error) {
	unknown := &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("no worker has a kept sandbox %q", name)}
	if name == "" || (&fumehood.Spec{Name: name}).Validate() != nil {
		return nil, nil, nil, unknown
	}
	type answer struct {
		w    *worker
		l    *lease
		made *api.Sandbox
	}
	var got answer
	workers, err := p.reachable(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	errs := each(ctx, workers, func(w *worker, l *lease) error {
		var made api.Sandbox
		err := w.call(ctx, &request{method: http.MethodGet, path: "/v1/sandboxes/" + url.PathEscape(name), lease: l}, &made)
		if err != nil && codeOf(err) != api.CodeSandboxNotFound {
			return err
		}
		if err == nil && made.Kept {
			p.mu.Lock()
			defer p.mu.Unlock()
			got = answer{w, l, &made}
		}
		return nil
	})
	switch {
	case got.made != nil:
		return got.w, got.l, got.made, nil
	case errs != nil: // it may be on a worker that did not answer
		return nil, nil, nil, errs
	}
	return nil, nil, nil, unknown
}

// each calls a function for all workers at once. It returns their errors.
func each(ctx context.Context, workers []*worker, f func(*worker, *lease) error) error {
	return box.InParallel(len(workers), func(i int) error {
		w := workers[i]
		if err := w.skipReason(); err != nil {
			return err
		}
		w.mu.Lock()
		known := w.lease != nil
		w.mu.Unlock()
		if !known { // it may not be there at all
			if _, err := w.status(ctx, ""); err != nil {
				w.avoid(err)
				return err
			}
		}
		l, err := w.newLease(ctx)
		if err != nil {
			return err
		}
		return f(w, l)
	})
}

// Kept lists the kept sandboxes of the workers that answer, by name. It logs a warning about others, and returns an error if
// none answers.
func (p *Provider) Kept(ctx context.Context, names ...string) ([]provider.KeptSandbox, error) {
	var mu sync.Mutex
	var all []provider.KeptSandbox
	workers, err := p.reachable(ctx)
	if err != nil {
		return nil, opError("list kept sandboxes", err)
	}
	err = each(ctx, workers, func(w *worker, l *lease) error {
		var found struct {
			Sandboxes []api.Sandbox `json:"sandboxes"`
		}
		if err := w.call(ctx, &request{method: http.MethodGet, path: "/v1/sandboxes", lease: l}, &found); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if all == nil {
			all = []provider.KeptSandbox{}
		}
		for _, sb := range found.Sandboxes {
			if sb.Kept && (len(names) == 0 || slices.Contains(names, sb.Name)) {
				sb.Provider = p.Name()
				all = append(all, provider.KeptSandbox{Info: sb.Info, Created: sb.Created, Expires: sb.Expires, States: sb.States})
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b provider.KeptSandbox) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case err == nil:
	case all == nil || ctx.Err() != nil:
		return nil, opError("list kept sandboxes", err)
	default:
		p.log.Warn("not all workers answer: kept sandboxes of others are not listed", "error", err)
	}
	return all, nil
}

// Renew sets the expiry of a kept sandbox.
func (p *Provider) Renew(ctx context.Context, name string, ttl time.Duration) (time.Time, error) {
	op := "renew sandbox " + name
	w, l, made, err := p.find(ctx, name)
	if err != nil {
		return time.Time{}, opError(op, err)
	}
	r := &request{method: http.MethodPost, path: "/v1/sandboxes/" + url.PathEscape(made.ID) + "/renew", lease: l, again: true}
	r.json = map[string]float64{"ttl_ms": float64(ttl) / float64(time.Millisecond)}
	if err := w.call(ctx, r, made); err != nil {
		return time.Time{}, opError(op, err)
	}
	return made.Expires, nil
}

// Logs sends the output of the main process of a kept sandbox's service to out.
func (p *Provider) Logs(ctx context.Context, name, service string, opts provider.LogOptions, out provider.Sink) error {
	op := "read logs of " + name
	w, l, made, err := p.find(ctx, name)
	if err != nil {
		return opError(op, err)
	}
	query := url.Values{"service": {service}, "tail": {strconv.Itoa(opts.Tail)}, "follow": {strconv.FormatBool(opts.Follow)}}
	body, err := w.openStream(ctx, &request{method: http.MethodGet, path: "/v1/sandboxes/" + url.PathEscape(made.ID) + "/logs/events", query: query, lease: l})
	if err != nil {
		return opError(op, err)
	}
	defer body.Close()
	_, err = eachEvent(body, func(s fumehood.Stream, e *api.Event) { out(s, e.Data) })
	switch _, lost := asLost(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &fumehood.Error{Op: op, Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
	case lost:
		err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: err}
	}
	return opError(op, err)
}

// Cleanup removes what ended processes of the workers left, or kept sandboxes. Caches and objects of others stay: Caches and
// Foreign are an ErrUnsupported.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	const op = "clean up"
	if opts.Caches || len(opts.Foreign) > 0 {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrUnsupported, Err: errors.New("caches and objects of others are removed on the worker's machine"), Hint: "run `fumehood cleanup` there"}
	}
	names := map[*worker][]string{}
	workers, err := p.reachable(ctx)
	if err != nil {
		return nil, opError(op, err)
	}
	for _, name := range opts.Names {
		w, _, _, err := p.find(ctx, name)
		if err != nil {
			return nil, opError(op, err)
		}
		names[w] = append(names[w], name)
	}
	if len(opts.Names) > 0 {
		workers = slices.Collect(maps.Keys(names))
	}
	var mu sync.Mutex
	var all []provider.Leftover
	err = each(ctx, workers, func(w *worker, l *lease) error {
		r := &request{method: http.MethodPost, path: "/v1/cleanup", json: api.Cleanup{Names: names[w], DryRun: opts.DryRun}, lease: l}
		var done struct {
			Leftovers []api.Leftover `json:"leftovers"`
		}
		if err := w.call(ctx, r, &done); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		var errs []error
		for _, j := range done.Leftovers {
			o := provider.Leftover{
				Kind: j.Kind, Name: j.Name, Sandbox: j.Sandbox, Owner: j.Owner, Kept: j.Kept, Cache: j.Cache, Foreign: j.Foreign,
				Remove: j.Remove, Reason: j.Reason, Removed: j.Removed,
			}
			if j.Error != nil {
				o.Err = errorOf(*j.Error, 0)
				errs = append(errs, o.Err)
			}
			all = append(all, o)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return all, opError(op, err)
	}
	return all, nil
}
