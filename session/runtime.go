package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

// Runtime is a container over a session's workspace, or under type local a place for processes of this machine.
// It runs one command at a time; see Execute and Stream. After the runtime was killed or cleaned up, or its
// container has died, every call returns an ErrUnavailable: a runtime never gets a new container. Its methods may
// be called by many goroutines at once.
type Runtime struct {
	s    *Session
	sb   fumehood.Sandbox
	svc  fumehood.Service // runs as the user of the commands
	opts SpawnOptions
	keep bool
	// copies is the folder, in the session's folder, of the copies that it mounts; empty if there are none.
	copies string

	ending sync.Mutex // held while it is ended
	gone   bool       // it has ended without an error

	mu    sync.Mutex
	busy  bool
	ended string   // what ended it, for errors; empty while usable
	shell []string // runs scripts; nil until known
	code  *int     // of the last command; nil until one has ended
}

// Name returns the name of the runtime's sandbox.
func (r *Runtime) Name() string { return r.sb.Info().Name }

// Service returns the running container as a fumehood.Service. Use it for files, for commands next to the one
// that the runtime runs, and for Start, which accepts standard input and returns events.
func (r *Runtime) Service() fumehood.Service { return r.svc }

// Connection returns how a person can open a shell in the container, using the program that the spec's
// docker.binary names, and which ports are published.
func (r *Runtime) Connection(ctx context.Context) (fumehood.Connection, error) {
	if err := r.usable("connect"); err != nil {
		return fumehood.Connection{}, err
	}
	c, err := r.sb.Connection(ctx)
	if err != nil {
		return c, opError("connect", err)
	}
	return c, nil
}

// Poll returns the exit code of the last command that has ended, or -1 if its Stream was left early or canceled. Ok
// is false while a command runs and before the first one has ended.
func (r *Runtime) Poll() (code int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy || r.code == nil {
		return 0, false
	}
	return *r.code, true
}

func (r *Runtime) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

func (r *Runtime) usable(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unusable(op)
}

// unusable is usable for callers that hold the lock.
func (r *Runtime) unusable(op string) error {
	if r.ended == "" {
		return nil
	}
	return &fumehood.Error{Op: op, Class: fumehood.ErrUnavailable, Err: errors.New("the runtime was " + r.ended), Hint: "spawn a new runtime"}
}

// begin reserves the runtime for one command.
func (r *Runtime) begin(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.unusable(op); err != nil {
		return err
	}
	if r.busy {
		return &fumehood.Error{Op: op, Class: fumehood.ErrLimit, Err: ErrBusy, Hint: "wait until it ends, or spawn another runtime"}
	}
	r.busy = true
	return nil
}

// finish releases the runtime after a command.
func (r *Runtime) finish(res *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	if res != nil {
		r.code = &res.ExitCode
	}
}

// Kill kills the running command and removes the container, even if the spec keeps containers. It does not
// download an uploaded workspace. Canceling ctx does not stop Kill. It may be called more than once.
func (r *Runtime) Kill(ctx context.Context) error {
	r.mark("killed")
	return opError("kill runtime", r.end(ctx, false, true))
}

// Cleanup kills the running command and removes the container. A container that the spec keeps is stopped
// instead, and the command to inspect it is logged. An uploaded workspace is downloaded first. Canceling ctx does
// not stop Cleanup. It may be called more than once: after a success it does nothing, and after an error it tries
// again.
func (r *Runtime) Cleanup(ctx context.Context) error {
	return opError("clean up runtime", r.end(ctx, true, false))
}

func (r *Runtime) mark(how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == "" {
		r.ended = how
	}
}

// end closes the sandbox and removes the runtime from the session.
func (r *Runtime) end(ctx context.Context, fetch, remove bool) error {
	ctx = context.WithoutCancel(ctx)
	r.mark("cleaned up")
	r.ending.Lock()
	defer r.ending.Unlock()
	if r.gone {
		return nil
	}
	var lost error
	if fetch && r.s.uploads() {
		lost = r.bringBack(ctx)
	}
	if err := r.closeSandbox(ctx, remove); err != nil {
		return errors.Join(lost, err)
	}
	if !r.keep || remove {
		if err := r.s.helper().removeCopies(ctx, r.copies); err != nil {
			return errors.Join(lost, err)
		}
	}
	r.gone = true
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.runtimes = slices.DeleteFunc(r.s.runtimes, func(other *Runtime) bool { return other == r })
	return lost
}

func (r *Runtime) bringBack(ctx context.Context) error {
	r.s.saving.Lock()
	defer r.s.saving.Unlock()
	if err := r.fetch(ctx); err != nil {
		return fmt.Errorf("download the workspace: %w", err)
	}
	return nil
}

// closeSandbox closes the sandbox, and removes it unless it is kept.
func (r *Runtime) closeSandbox(ctx context.Context, remove bool) error {
	switch {
	case !r.keep:
		return r.sb.Close(ctx)
	case remove:
		cleaner, ok := r.s.opts.Provider.(provider.Cleaner)
		if !ok {
			return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: errors.New("this provider cannot remove a kept sandbox")}
		}
		err := r.sb.Close(ctx)
		_, cerr := cleaner.Cleanup(ctx, provider.CleanupOptions{Names: []string{r.sb.Info().Name}})
		return errors.Join(err, cerr)
	}
	c, err := r.sb.Connection(ctx)
	if err == nil {
		err = r.sb.Stop(ctx)
	}
	if err = errors.Join(err, r.sb.Close(ctx)); err != nil {
		return err
	}
	name := r.sb.Info().Name
	look := "fumehood shell " + name
	if c.Container != "" {
		look = spec.QuoteAll([]string{r.s.env.Docker.Binary, "start", c.Container}) + " && " + spec.QuoteAll(c.Shell)
	}
	r.s.log.Info("the container is kept, stopped", "container", cmp.Or(c.Container, name), "look", look, "remove", "fumehood cleanup "+name)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.kept = r.s.kept || !r.s.uploads()
	return nil
}
