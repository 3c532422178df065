package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// RunOptions are the options of Run. Sandbox and Cmd are required.
type RunOptions struct {
	Sandbox Described
	Cmd     fumehood.Cmd
	In, Out []Transfer // copies before and after the command
	// Started is called when the sandbox has started, with the time that took. It may be nil.
	Started func(sb fumehood.Sandbox, took time.Duration)
	// Exec runs the command. Nil means Service.Exec.
	Exec func(ctx context.Context, svc fumehood.Service, cmd fumehood.Cmd) (*fumehood.Result, error)
}

// Run starts a sandbox, runs one command in it, and removes the sandbox unless its spec keeps it. If a step after
// the command's end fails, Run returns both the result and the error.
func (a *App) Run(ctx context.Context, opts RunOptions) (res *fumehood.Result, err error) {
	began := time.Now()
	p, err := a.openProvider(ctx, opts.Sandbox)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	sb, err := a.startSandbox(ctx, p, opts.Sandbox)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close(ctx)) }()
	if opts.Started != nil {
		opts.Started(sb, time.Since(began))
	}
	for _, t := range opts.In {
		if err := t.CopyIn(ctx, sb); err != nil {
			return nil, err
		}
	}
	exec := opts.Exec
	if exec == nil {
		exec = func(ctx context.Context, svc fumehood.Service, cmd fumehood.Cmd) (*fumehood.Result, error) {
			return svc.Exec(ctx, cmd)
		}
	}
	if res, err = exec(ctx, sb, opts.Cmd); err != nil {
		return nil, err
	}
	for _, t := range opts.Out {
		if err := t.CopyOut(ctx, sb, a.Logger); err != nil {
			return res, err
		}
	}
	return res, nil
}

// Up starts a sandbox whose spec has Keep set, and calls started with its Info and a function that returns how the
// provider lists it. Up returns the error of started, but the sandbox stays.
func (a *App) Up(
	ctx context.Context, d Described, started func(info fumehood.Info, listed func() (provider.KeptSandbox, error)) error,
) (err error) {
	p, err := a.openProvider(ctx, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	opener, ok := p.(provider.Opener)
	if !ok {
		return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s has no named sandboxes", p.Name())}
	}
	sb, err := a.startSandbox(ctx, p, d)
	if err != nil {
		return err
	}
	info := sb.Info()
	err = started(info, func() (provider.KeptSandbox, error) { return findKept(ctx, opener, info.Name) })
	return errors.Join(err, sb.Close(ctx)) // Close leaves a kept sandbox in place
}

// findKept returns how the provider lists a kept sandbox.
func findKept(ctx context.Context, o provider.Opener, name string) (provider.KeptSandbox, error) {
	found, err := o.Kept(ctx, name)
	if err == nil && len(found) == 0 {
		err = &fumehood.Error{Op: "list sandbox " + name, Class: fumehood.ErrUnavailable, Err: errors.New("it has been removed")}
	}
	if err != nil {
		return provider.KeptSandbox{}, err
	}
	return found[0], nil
}
