package fumehood

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Sandbox is a started environment. Its methods may be called by many goroutines at once. Exec and the
// other methods of a service are there on the sandbox too, for its default service.
type Sandbox struct {
	*Service // the default service

	be       Backend
	info     Info
	services map[string]*Service
	recorder atomic.Pointer[Recorder]

	closing sync.Mutex // held while the backend is being closed
	mu      sync.Mutex
	closed  bool // no more calls
	gone    bool // the backend was closed without an error
}

// NewSandbox makes a sandbox over a provider's backend. What its Info does not say and the spec does is the
// spec's. It is for providers.
func NewSandbox(be Backend, spec Spec) *Sandbox {
	sb := &Sandbox{be: be, info: spec.Describe(be.Info()), services: map[string]*Service{}}
	for _, info := range sb.info.Services {
		svc := &Service{sb: sb, info: info, be: be.Service(info.Name), detached: &detached{}}
		sb.services[info.Name] = svc
		if sb.Service == nil {
			sb.Service = svc
		}
	}
	sb.recorder.Store(spec.Recorder())
	spec.Recorder().started(sb.info)
	return sb
}

// Describe completes what a provider says of a sandbox with what its spec says. It is for providers.
func (s *Spec) Describe(info Info) Info {
	if len(s.Labels) > 0 {
		info.Labels = maps.Clone(s.Labels)
	}
	file, names := s.ConfigFile, slices.Collect(maps.Keys(s.Env))
	if c := s.Compose; c != nil {
		file = cmp.Or(file, append(slices.Clone(c.Files), c.Dockerfile)[0])
		names = slices.AppendSeq(names, maps.Keys(c.Env))
		names = slices.AppendSeq(names, maps.Keys(c.hostEnv()))
	}
	if file != "" {
		info.ConfigFile = file
		if abs, err := filepath.Abs(file); err == nil {
			info.ConfigFile = abs
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		info.EnvNames = slices.Compact(names)
	}
	return info
}

// Info describes the sandbox.
func (sb *Sandbox) Info() Info {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	info := sb.info
	info.Labels = maps.Clone(info.Labels)
	return info
}

// Lookup returns the service of that name, or an ErrConfig that lists the names there are.
func (sb *Sandbox) Lookup(name string) (*Service, error) {
	if svc, ok := sb.services[name]; ok {
		return svc, nil
	}
	names := make([]string, len(sb.info.Services))
	for i, s := range sb.info.Services {
		names[i] = s.Name
	}
	return nil, &Error{
		Op: "look up service", Class: ErrConfig,
		Err: fmt.Errorf("no service %q in %s, only %s", name, sb.info.Name, strings.Join(names, ", ")),
	}
}

// Close ends everything that runs in the sandbox and removes it. It outlives the cancellation of ctx,
// has a deadline of its own, and may be called again: after a success that does nothing, after an error
// it tries once more. Calls made after Close fail with ErrUnavailable.
func (sb *Sandbox) Close(ctx context.Context) error {
	sb.mu.Lock()
	sb.closed = true
	sb.mu.Unlock()
	sb.closing.Lock()
	defer sb.closing.Unlock()
	if sb.gone {
		return nil
	}
	if err := sb.phase("close", func() error { return sb.be.Close(context.WithoutCancel(ctx)) }); err != nil {
		return classify(context.WithoutCancel(ctx), err, "close sandbox "+sb.info.Name, "", "")
	}
	sb.gone = true
	return nil
}

// Stop ends everything that runs in a kept sandbox (Spec.Keep), which stays as it is otherwise, for a person
// to look into. Calls made after Stop, but for Close, fail with ErrUnavailable. A sandbox that is not kept
// is an ErrConfig, a provider that cannot do it an ErrUnsupported.
func (sb *Sandbox) Stop(ctx context.Context) error {
	op := "stop sandbox " + sb.info.Name
	be, ok := sb.be.(Stopper)
	if !ok {
		return &Error{Op: op, Class: ErrUnsupported, Err: errors.New("this provider cannot stop a sandbox and leave it")}
	}
	ctx = context.WithoutCancel(ctx)
	if err := sb.phase("stop", func() error { return be.Stop(ctx) }); err != nil {
		return classify(ctx, err, op, "", "")
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.closed = true
	return nil
}

// Freeze stops all that runs in the sandbox where it is, in every service, until thaw is called. Meanwhile nothing in it
// answers, and the wall limits of its commands go on. Thaw outlives the cancellation of its context; it is needed where Freeze
// has no error. What cannot be frozen, by the provider or by a daemon without control groups, is an ErrUnsupported.
func (sb *Sandbox) Freeze(ctx context.Context) (thaw func(context.Context) error, err error) {
	op := "freeze sandbox " + sb.info.Name
	be, ok := sb.be.(Freezer)
	if !ok {
		return nil, &Error{Op: op, Class: ErrUnsupported, Err: errors.New("this provider cannot freeze a sandbox")}
	}
	if err := sb.check(op, ""); err != nil {
		return nil, err
	}
	release, err := be.Freeze(ctx)
	if err != nil {
		return nil, classify(ctx, err, op, "", "")
	}
	return func(ctx context.Context) error {
		ctx = context.WithoutCancel(ctx)
		return classify(ctx, release(ctx), "thaw sandbox "+sb.info.Name, "", "")
	}, nil
}

func (sb *Sandbox) check(op, service string) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.closed {
		return &Error{Op: op, Service: service, Class: ErrUnavailable, Err: fmt.Errorf("sandbox %s is closed", sb.info.Name)}
	}
	return nil
}

// Service is one service of a sandbox: commands run and files live in it.
type Service struct {
	sb   *Sandbox
	info ServiceInfo
	be   ServiceBackend

	user   string // who uses it, where As said so
	direct bool   // ViaEngine said so

	detached *detached // one for all users
}

// ServiceInfo describes the service; its User is the one that As named, if any.
func (s *Service) ServiceInfo() ServiceInfo {
	info := s.info
	info.User = cmp.Or(s.user, info.User)
	return info
}

// Exec runs cmd to its end. The error says that we failed, or that the program could not be started
// (ErrNotStarted); how a program that ran has ended is in the Result, whatever its exit code. When ctx
// ends first the command is killed and the error is an ErrCancelled.
func (s *Service) Exec(ctx context.Context, cmd Cmd) (*Result, error) {
	if cmd.StdinPipe {
		return nil, &Error{Op: "exec", Service: s.info.Name, Class: ErrConfig, Err: errors.New("StdinPipe needs Start")}
	}
	if err := s.attached(cmd); err != nil {
		return nil, err
	}
	p, cmd, err := s.handOver(ctx, cmd, false, nil)
	if err != nil {
		return nil, err
	}
	p.supervise(ctx, cmd)
	return p.result, p.err
}

// attached refuses a command that is to be detached.
func (s *Service) attached(cmd Cmd) error {
	if cmd.Detach {
		return &Error{Op: "exec", Service: s.info.Name, Class: ErrConfig, Err: errors.New("only Start can detach a command")}
	}
	return nil
}

// Start hands cmd over and returns while it runs. When ctx ends, the command is killed, unless it is
// detached.
func (s *Service) Start(ctx context.Context, cmd Cmd) (*Process, error) {
	if cmd.Detach {
		return s.start(ctx, cmd, nil)
	}
	return s.start(ctx, cmd, newFeed())
}

// Stream runs cmd and yields what it writes as it comes, every byte of it, and at last its Result.
// The program is held back while the loop's body is busy. Leaving the loop early kills the command.
func (s *Service) Stream(ctx context.Context, cmd Cmd) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := s.attached(cmd); err != nil {
			yield(Event{}, err)
			return
		}
		f := newFeed()
		f.attach()
		p, err := s.start(ctx, cmd, f)
		if err != nil {
			yield(Event{}, err)
			return
		}
		p.deliver(yield)
		cancel()
		<-p.done
	}
}

// Connection says how a person gets into the service, or ErrUnsupported.
func (s *Service) Connection(ctx context.Context) (Connection, error) {
	const op = "connect"
	if err := s.sb.check(op, s.info.Name); err != nil {
		return Connection{}, err
	}
	c, ok := s.be.(Connector)
	if !ok {
		return Connection{}, &Error{Op: op, Service: s.info.Name, Class: ErrUnsupported, Err: errors.New("this provider has no connection to offer")}
	}
	conn, err := c.Connection(ctx)
	return conn, classify(ctx, err, op, s.info.Name, "")
}

// Forward listens at a port of this machine, until the sandbox is closed, and has the sandbox pass what comes there on to
// the service's port p.Container, from inside: no network of the sandbox is needed. p.Host 0 means any port that is free,
// and an empty p.Address 127.0.0.1. What it returns says where it listens; Connection tells it too. An address that
// is taken is ErrConfig. Where there is nothing to pass it on by (the local provider, the Engine's transport), it is
// ErrUnsupported.
func (s *Service) Forward(ctx context.Context, p Port) (Port, error) {
	op := fmt.Sprintf("forward port %d", p.Container)
	if err := s.sb.check(op, s.info.Name); err != nil {
		return Port{}, err
	}
	if err := p.check(); err != nil {
		return Port{}, &Error{Op: op, Service: s.info.Name, Class: ErrConfig, Err: err}
	}
	f, ok := s.be.(Forwarder)
	if !ok {
		return Port{}, &Error{Op: op, Service: s.info.Name, Class: ErrUnsupported, Err: errors.New("this provider forwards no ports")}
	}
	got, err := f.Forward(ctx, p)
	return got, classify(ctx, err, op, s.info.Name, "")
}

// abs resolves a path against the service's directory. It does not clean it: "a/.." may well differ
// from "." where a is a link.
func (s *Service) abs(path string) string {
	if strings.HasPrefix(path, "/") || s.info.Dir == "" {
		return path
	}
	if path == "" || path == "." {
		return s.info.Dir
	}
	return strings.TrimSuffix(s.info.Dir, "/") + "/" + path
}
