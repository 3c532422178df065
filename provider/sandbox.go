package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fumehood/fumehood"
)

// sandbox is a fumehood.Sandbox.
type sandbox struct {
	*service // the default service

	be       Backend
	info     fumehood.Info
	services map[string]*service
	recorder atomic.Pointer[Recorder]

	closing sync.Mutex // held while the backend is being closed
	mu      sync.Mutex
	closed  bool   // calls fail
	ended   string // what this process has done to it that ends commands: "closed", "stopped"; empty for nothing
	gone    bool   // the backend was closed successfully
}

// New returns a sandbox on a provider's backend. The spec supplies what the backend's Info lacks. rec is the
// recorder used for the start; nil creates one.
func New(be Backend, spec fumehood.Spec, rec *Recorder) fumehood.Sandbox {
	sb := &sandbox{be: be, info: Describe(&spec, be.Info()), services: map[string]*service{}}
	for _, info := range sb.info.Services {
		svc := &service{sb: sb, info: info, be: be.Service(info.Name), detached: &detached{byID: map[int]*process{}}}
		sb.services[info.Name] = svc
		if sb.service == nil {
			sb.service = svc
		}
	}
	if rec == nil {
		rec = NewRecorder(&spec)
	}
	sb.recorder.Store(rec)
	rec.recordStart(sb.info)
	return sb
}

// Describe adds labels, configuration file and names of variables of the spec to a provider's Info. New does so too.
func Describe(s *fumehood.Spec, info fumehood.Info) fumehood.Info {
	if len(s.Labels) > 0 {
		info.Labels = maps.Clone(s.Labels)
	}
	file, names := s.ConfigFile, slices.Collect(maps.Keys(s.Env))
	if c := s.Compose; c != nil {
		file = cmp.Or(file, append(slices.Clone(c.Files), c.Dockerfile)[0])
		names = slices.AppendSeq(names, maps.Keys(c.Env))
		names = slices.AppendSeq(names, maps.Keys(hostEnv(c)))
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

// hostEnv returns the variables of this process that a project may see.
func hostEnv(c *fumehood.Compose) map[string]string {
	env := map[string]string{}
	for _, name := range c.HostEnv {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	return env
}

func (sb *sandbox) Info() fumehood.Info {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	info := sb.info
	info.Labels = maps.Clone(info.Labels)
	return info
}

func (sb *sandbox) Lookup(name string) (fumehood.Service, error) {
	if svc, ok := sb.services[name]; ok {
		return svc, nil
	}
	names := make([]string, len(sb.info.Services))
	for i, s := range sb.info.Services {
		names[i] = s.Name
	}
	return nil, &fumehood.Error{
		Op: "look up service", Class: fumehood.ErrConfig,
		Err: fmt.Errorf("no service %q in %s, only %s", name, sb.info.Name, strings.Join(names, ", ")),
	}
}

func (sb *sandbox) Close(ctx context.Context) error {
	sb.mu.Lock()
	sb.closed, sb.ended = true, cmp.Or(sb.ended, "closed")
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

func (sb *sandbox) Stop(ctx context.Context) error {
	op := "stop sandbox " + sb.info.Name
	be, ok := sb.be.(Stopper)
	if !ok {
		return &fumehood.Error{Op: op, Class: fumehood.ErrUnsupported, Err: errors.New("this provider cannot stop a sandbox and keep it")}
	}
	ctx = context.WithoutCancel(ctx)
	sb.mu.Lock()
	sb.ended = cmp.Or(sb.ended, "stopped")
	sb.mu.Unlock()
	if err := sb.phase("stop", func() error { return be.Stop(ctx) }); err != nil {
		sb.mu.Lock()
		if sb.ended == "stopped" { // it may live on
			sb.ended = ""
		}
		sb.mu.Unlock()
		return classify(ctx, err, op, "", "")
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.closed = true
	return nil
}

func (sb *sandbox) Freeze(ctx context.Context) (thaw func(context.Context) error, err error) {
	op := "freeze sandbox " + sb.info.Name
	be, ok := sb.be.(Freezer)
	if !ok {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrUnsupported, Err: errors.New("this provider cannot freeze a sandbox")}
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

// causeOfEnd returns what this process has done to the sandbox that ends commands; see ended.
func (sb *sandbox) causeOfEnd() string {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.ended
}

func (sb *sandbox) check(op, service string) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.closed {
		return &fumehood.Error{Op: op, Service: service, Class: fumehood.ErrUnavailable, Err: fmt.Errorf("sandbox %s is closed", sb.info.Name)}
	}
	return nil
}

func (sb *sandbox) Assign(labels map[string]string) error {
	var wrong *fumehood.Error
	if err := (&fumehood.Spec{Labels: labels}).Validate(); errors.As(err, &wrong) {
		wrong.Op = "assign sandbox"
		return wrong
	}
	labels = maps.Clone(labels)
	sb.mu.Lock()
	sb.info.Labels = labels
	sb.mu.Unlock()
	r := sb.recorder.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.Labels = labels
	return nil
}

func (sb *sandbox) Check(ctx context.Context) error {
	const op = "check sandbox"
	if err := sb.check(op, ""); err != nil {
		return err
	}
	if be, ok := sb.be.(Checker); ok {
		if err := be.Check(ctx); err != nil {
			return classify(ctx, err, op, "", "")
		}
	}
	_, err := sb.service.be.Files("").Stat(ctx, "/")
	return classify(ctx, err, op, sb.service.info.Name, "/")
}
