package cli

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/term"

	"github.com/fumehood/fumehood"
)

// terminalTypes are the types of terminals that images usually know. Another image would not know a rarer one, and what
// else TERM holds is not passed into a sandbox.
var terminalTypes = []string{
	"ansi", "dumb", "linux", "rxvt", "screen", "screen-256color", "tmux", "tmux-256color", "vt100", "vt220", "xterm", "xterm-256color", "xterm-color",
}

// terminalType returns the type of our terminal, or "" if it is not a common one.
func (a *commandLine) terminalType() string {
	if term, _ := a.settings.env("TERM"); slices.Contains(terminalTypes, term) {
		return term
	}
	return ""
}

// inTerminal runs a command that has a terminal, and connects that to ours if standard input is a terminal.
func (a *commandLine) inTerminal(ctx context.Context, svc fumehood.Service, cmd fumehood.Cmd) (*fumehood.Result, error) {
	cmd.StdoutCap = fumehood.KeepNone
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
