package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fumehood/fumehood"
)

// RunOptions say what Run does. Sandbox and Cmd are needed.
type RunOptions struct {
	Sandbox Described
	Cmd     fumehood.Cmd
	In, Out []Transfer // copies before the command, and after it
	// Started is told of the sandbox when it is there, and how long that took. It may be nil.
	Started func(sb *fumehood.Sandbox, took time.Duration)
	// Show takes the command's output as it comes; the result then keeps none. Nil has the result keep it.
	Show func(s fumehood.Stream, data []byte) error
}

// Run starts a sandbox, runs one command in it, and removes the sandbox unless its spec keeps it. Where something fails after
// the command's end, there is a result besides the error.
func (a *App) Run(ctx context.Context, opts RunOptions) (res *fumehood.Result, err error) {
	began := time.Now()
	p, err := a.open(ctx, opts.Sandbox)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	sb, err := a.start(ctx, p, opts.Sandbox)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close(ctx)) }()
	if opts.Started != nil {
		opts.Started(sb, time.Since(began))
	}
	for _, t := range opts.In {
		if err := t.CopyIn(ctx, sb.Service); err != nil {
			return nil, err
		}
	}
	if opts.Show == nil {
		res, err = sb.Exec(ctx, opts.Cmd)
	} else {
		res, err = Stream(ctx, sb.Service, opts.Cmd, opts.Show)
	}
	if err != nil {
		return res, err
	}
	for _, t := range opts.Out {
		if err := t.CopyOut(ctx, sb.Service); err != nil {
			return res, err
		}
	}
	return res, nil
}

// Stream runs a command whose output show takes as it comes. The result keeps none of it. An error of show ends the command.
func Stream(ctx context.Context, svc *fumehood.Service, cmd fumehood.Cmd, show func(s fumehood.Stream, data []byte) error) (*fumehood.Result, error) {
	cmd.StdoutCap, cmd.StderrCap = fumehood.KeepNone, fumehood.KeepNone
	for ev, err := range svc.Stream(ctx, cmd) {
		if err != nil {
			return nil, err
		}
		if ev.Result != nil {
			return ev.Result, nil
		}
		if err := show(ev.Stream, ev.Data); err != nil {
			return nil, err
		}
	}
	return nil, &fumehood.Error{Op: "run", Class: fumehood.ErrInfrastructure, Err: io.ErrUnexpectedEOF}
}

// Up starts a sandbox that stays, which its spec says by Keep, and tells started of it. An error of started's is returned; the
// sandbox stays all the same.
func (a *App) Up(ctx context.Context, d Described, started func(fumehood.Info) error) (err error) {
	p, err := a.open(ctx, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	if _, ok := p.(fumehood.Opener); !ok {
		return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s has no named sandboxes", p.Name())}
	}
	sb, err := a.start(ctx, p, d)
	if err != nil {
		return err
	}
	return errors.Join(started(sb.Info()), sb.Close(ctx)) // which leaves it
}
