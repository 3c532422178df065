package client

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

// CloseStdin ends the command's standard input.
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

// GiveUp ends the connection to the command, which the guest then kills as soon as it learns of that.
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

// killWithin bounds the wait for the guest's word on a kill, beyond the grace. The guest itself gives up after 11 s, but
// gets little of the processor where what is to be killed forks without end: Linux (6.18, say) prefers new processes, and
// has let a guest wait for 15 s.
const killWithin = time.Minute

// Kill ends the command and all its descendants, and reports whether that is so.
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
		if !p.delivering.Load() { // it does not answer
			p.close()
			<-p.ended
			return false
		}
		t.Reset(killWithin) // it is not heard while a caller takes its time over the output
	}
}
