package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

// errEnded is the error of a write to a command that has ended.
var errEnded = errors.New("the command has ended")

// Write writes to the command's standard input.
func (p *Process) Write(b []byte) (int, error) {
	select {
	case <-p.ended:
		return 0, errEnded
	default:
	}
	if err := p.s.Send(wire.Stdin, b); err != nil {
		return 0, errEnded
	}
	return len(b), nil
}

// CloseStdin closes the command's standard input.
func (p *Process) CloseStdin() error {
	if !p.stdin {
		return nil
	}
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.s.SendEnd(wire.Stdin); err != nil {
		return errEnded
	}
	return nil
}

// Signal sends a signal to the command's process group.
func (p *Process) Signal(_ context.Context, sig int) error {
	if sig < 1 || sig > 64 {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("there is no signal %d", sig)}
	}
	p.order(wire.Order{Signal: sig})
	return nil
}

// GiveUp closes the stream of the command. The guest kills the command when it notices this.
func (p *Process) GiveUp() { p.close() }

// Resize sets the terminal's size.
func (p *Process) Resize(_ context.Context, rows, cols uint16) error {
	p.order(wire.Order{Resize: &wire.Size{Rows: rows, Cols: cols}})
	return nil
}

func (p *Process) order(o wire.Order) {
	if text, err := json.Marshal(o); err == nil {
		_ = p.s.SendMessage(text) // a command that has ended takes no orders
	}
}

// killWithin bounds the wait for the guest to report a kill, in addition to the grace. The guest itself gives up
// after 11 s. But it gets little processor time while it kills a fork bomb. Some versions of Linux, such
// as 6.18, prefer new processes and have delayed a guest by 15 s.
const killWithin = time.Minute

// Kill kills the command and all its descendants. It returns whether all were killed.
func (p *Process) Kill(context.Context) bool {
	p.order(wire.Order{Kill: true})
	t := time.NewTimer(p.grace + killWithin)
	defer t.Stop()
	for {
		select {
		case <-p.ended:
			return p.err == nil && p.lost == nil && p.exit.Survivors == 0
		case <-t.C:
		}
		if !p.delivering.Load() { // no answer
			p.close()
			<-p.ended
			return false
		}
		t.Reset(killWithin) // the caller is still processing output, so the answer was not read yet
	}
}
