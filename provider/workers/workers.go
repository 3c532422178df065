// Package workers is a provider whose sandboxes are on other machines, or in Pods, each of which runs `fumehood serve`. It
// is for Linux machines that have the native provider:
//
//	fumehood serve --provider native --listen 0.0.0.0:8420 --host worker-1:8420 --tls-cert ... --tls-key ... --token-file token
//
// The workers are Options.URLs, or a changing set that Options.Discover finds: those of a Service in a Kubernetes cluster, by
// kubernetes.WorkerService. New workers get sandboxes from the next answer on. One that goes away gets no more of them, and those
// that it has stay there until they are closed or the worker is lost.
//
// Each sandbox is on one worker, which is chosen at its start: one that has the sandbox's image, else the one with the
// fewest sandboxes per processor. A worker that does not answer is skipped for 5 seconds. If a worker is lost, so are its
// sandboxes: their commands end with the outcome Lost, and calls are an ErrUnavailable. Nothing runs twice. If this process
// dies, the workers remove its sandboxes after 5 seconds, except kept ones.
//
// What a spec may request depends on the flags of `fumehood serve`, such as --allow-egress and --allow-kept. Paths in a spec,
// of mounts and Compose files, are paths of the worker's machine. Published ports are those of this machine: this process
// forwards TCP, and no UDP, while it has the sandbox.
package workers

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/provider"
)

// Provider runs sandboxes on workers. It is created by New. Its methods may be called by multiple goroutines concurrently.
type Provider struct {
	log  *slog.Logger
	opts Options
	open box.Set

	finding   sync.Mutex         // held while workers are discovered, and with the fields up to answered
	workers   []*worker          // that may get sandboxes; the slice is replaced, not changed
	known     map[string]*worker // that a Discovery has named, by address
	listed    time.Time          // when it was asked
	listError error              // of that, without an answer before it
	answered  bool               // it has answered

	mu sync.Mutex // of the numbers pending of all workers
}

var (
	_ fumehood.Provider = (*Provider)(nil)
	_ provider.Opener   = (*Provider)(nil)
	_ provider.Cleaner  = (*Provider)(nil)
	_ provider.Measurer = (*Provider)(nil)
)

// New returns a provider. It contacts no worker. Options that cannot be used are an ErrConfig.
func New(opts Options) (*Provider, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Provider{log: opts.Logger, opts: opts, known: map[string]*worker{}}
	switch d := opts.Discover; {
	case d == nil:
	case len(opts.URLs) > 0:
		return nil, configError(errors.New("options URLs and Discover exclude each other"))
	case d.List == nil || d.Every < 0:
		return nil, configError(errors.New("option Discover has no List, or a negative Every"))
	}
	if _, err := opts.tls(); err != nil {
		return nil, configError(err)
	}
	for _, address := range opts.URLs {
		w, err := newWorker(address, &opts)
		if err != nil {
			return nil, configError(err)
		}
		p.workers = append(p.workers, w)
	}
	if len(p.workers) == 0 && opts.Discover == nil {
		return nil, configError(errors.New("there are no workers"))
	}
	return p, nil
}

// Name returns "workers".
func (p *Provider) Name() string { return "workers" }

// Start starts a sandbox on one of the workers. Binary has no effect. If no worker answers, the error is an ErrUnavailable
// that names each with its reason, and an ErrLimit if those that answer have no room.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	starting, place, err := p.open.Begin(ctx, spec.Name)
	if err != nil {
		return nil, err
	}
	defer place.Settle()
	sb, err := provider.Start(starting, spec, func(ctx context.Context, spec fumehood.Spec) (provider.Backend, error) {
		return p.start(ctx, spec, place)
	})
	switch {
	case err != nil && box.IsClosed(starting):
		return nil, box.ClosedError()
	case err != nil:
		return nil, err
	}
	place.Hold(sb.Close)
	return sb, nil
}

// start starts a sandbox on a worker that takes it.
func (p *Provider) start(ctx context.Context, spec fumehood.Spec, place *box.Place) (provider.Backend, error) {
	sent := portable(spec)
	var sb *sandbox
	err := p.place(ctx, &spec, func(ctx context.Context, w *worker) error {
		l, err := w.newLease(ctx)
		if err != nil {
			return err
		}
		var made api.Sandbox
		if err := w.callOnce(ctx, &request{method: "POST", path: "/v1/sandboxes", json: sent, lease: l}, &made); err != nil {
			return err
		}
		sb = p.newSandbox(w, l, &made, place)
		return nil
	})
	if err != nil {
		return nil, startError(err)
	}
	for _, port := range spec.Ports {
		if _, err := sb.services[sb.info.Services[0].Name].Forward(ctx, port); err != nil {
			return nil, errors.Join(err, sb.discard(ctx))
		}
	}
	return sb, nil
}

// portable returns a spec as a worker can read it: with the values of this process's variables, and without programs,
// ports and relative paths of this machine.
func portable(spec fumehood.Spec) fumehood.Spec {
	spec.Binary, spec.Ports, spec.Journal, spec.Logger = "", nil, nil, nil
	if abs, err := filepath.Abs(spec.ConfigFile); err == nil && spec.ConfigFile != "" {
		spec.ConfigFile = abs
	}
	if spec.Compose == nil || len(spec.Compose.HostEnv) == 0 {
		return spec
	}
	c := *spec.Compose
	env := map[string]string{}
	for _, name := range c.HostEnv {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, c.Env)
	c.Env, c.HostEnv = env, nil
	spec.Compose = &c
	return spec
}

// Machine returns the processors and the memory of all workers that answer, together.
func (p *Provider) Machine(ctx context.Context) (m provider.Machine, err error) {
	all, err := p.ready(ctx)
	if err != nil {
		return m, opError("measure workers", err)
	}
	var mu sync.Mutex
	err = box.InParallel(len(all), func(i int) error {
		st, err := all[i].status(ctx, "")
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		m.CPUs, m.Memory, m.MemoryAvailable = m.CPUs+st.CPUs, m.Memory+st.Memory, m.MemoryAvailable+st.MemoryAvailable
		return nil
	})
	if m.CPUs > 0 {
		err = nil
	}
	return m, opError("measure workers", err)
}

// Close removes all sandboxes that this provider holds, except kept ones, and ends its leases.
func (p *Provider) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := p.open.Close(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, w := range p.everKnown() {
		w.mu.Lock()
		l := w.lease
		w.mu.Unlock()
		if l != nil {
			all.Go(func() { l.release(ctx) })
		}
	}
	all.Wait()
	return nil
}
