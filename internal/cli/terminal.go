package cli

import (
	"context"
	"errors"
	"os"

	"golang.org/x/term"

	"github.com/fumehood/fumehood"
)

// inTerminal runs a command in a terminal and connects that to ours, if standard input is a terminal.
func (a *commandLine) inTerminal(ctx context.Context, svc fumehood.Service, cmd fumehood.Cmd) (*fumehood.Result, error) {
	cmd.StdoutCap, cmd.TTY = fumehood.KeepNone, true
	cmd.Stdin, cmd.Stdout = a.In, passed{a, fumehood.Stdout}
	own, ok := a.In.(*os.File)
	ok = ok && term.IsTerminal(int(own.Fd()))
	if ok {
		cmd.Rows, cmd.Cols = size(own)
	}
	p, err := svc.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if ok {
		before, err := term.MakeRaw(int(own.Fd()))
		if err != nil {
			return nil, errors.Join(&fumehood.Error{Op: "prepare the terminal", Class: fumehood.ErrInfrastructure, Err: err}, p.Kill(ctx))
		}
		defer func() { _ = term.Restore(int(own.Fd()), before) }() // nothing can be done about an error
		defer onResize(func() {
			rows, cols := size(own)
			_ = p.Resize(ctx, rows, cols) // ignore the error: the next resize may work
		})()
	}
	res, err := p.Wait(context.WithoutCancel(ctx)) // when ctx ends, the command is killed and Wait returns
	return res, ofOutput(err)
}

// size returns the size of a terminal in characters, or 0, 0 if it is unknown.
func size(terminal *os.File) (rows, cols uint16) {
	w, h, err := term.GetSize(int(terminal.Fd()))
	if err != nil || w < 0 || h < 0 || w > 1<<15 || h > 1<<15 {
		return 0, 0
	}
	return uint16(h), uint16(w)
}
