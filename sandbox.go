package lazaret

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
)

// Sandbox is a started environment. Its methods may be called by many goroutines at once. Exec and the
// other methods of a service are there on the sandbox too, for its default service.
type Sandbox struct {
	*Service // the default service

	be       Backend
	info     Info
	services map[string]*Service

	closing sync.Mutex // held while the backend is being closed
	mu      sync.Mutex
	closed  bool // no more calls
	gone    bool // the backend was closed without an error
}

// NewSandbox makes a sandbox over a provider's backend. It is for providers.
func NewSandbox(be Backend) *Sandbox {
	sb := &Sandbox{be: be, info: be.Info(), services: map[string]*Service{}}
	for _, info := range sb.info.Services {
		svc := &Service{sb: sb, info: info, be: be.Service(info.Name), detached: &detached{}}
		sb.services[info.Name] = svc
		if sb.Service == nil {
			sb.Service = svc
		}
	}
	return sb
}

// Info describes the sandbox.
func (sb *Sandbox) Info() Info { return sb.info }

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
	if err := sb.be.Close(context.WithoutCancel(ctx)); err != nil {
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
	if err := be.Stop(ctx); err != nil {
		return classify(ctx, err, op, "", "")
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.closed = true
	return nil
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

	user string // who uses it, where As said so

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
	p, err := s.start(ctx, cmd, false, nil)
	if err != nil {
		return nil, err
	}
	<-p.done
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
		return s.start(ctx, cmd, true, nil)
	}
	return s.start(ctx, cmd, true, newFeed())
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
		p, err := s.start(ctx, cmd, true, f)
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
