package provider

import (
	"context"
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
)

// killable is a sandbox with one command, which ends as exit says when it is killed or receives a signal.
type killable struct {
	stub
	exit  Exit
	err   error
	ended chan struct{}
}

func (b *killable) Service(string) ServiceBackend { return b }

func (b *killable) Start(context.Context, fumehood.Cmd, bool, Sink) (ProcessBackend, error) {
	return killableCommand{killable: b}, nil
}

type killableCommand struct {
	ProcessBackend
	*killable
}

func (c killableCommand) CloseStdin() error { return nil }
func (c killableCommand) Wait(context.Context) (Exit, error) {
	<-c.ended
	return c.exit, c.err
}

func (c killableCommand) Kill(context.Context) bool {
	close(c.ended)
	return true
}

func (c killableCommand) Signal(context.Context, int) error {
	close(c.ended)
	return nil
}

func TestProcess_killedByCaller(t *testing.T) {
	const reason = "killed by the caller"
	kill := func(ctx context.Context, p fumehood.Process) error { return p.Kill(ctx) }
	signal := func(sig int) func(context.Context, fumehood.Process) error {
		return func(ctx context.Context, p fumehood.Process) error { return p.Signal(ctx, sig) }
	}
	signaled := func(sig int) Exit { return Exit{Outcome: fumehood.Signaled, Code: 128 + sig, Signal: sig} }
	byOther := signaled(15)
	byOther.Killed = true
	for name, c := range map[string]struct {
		how    func(context.Context, fumehood.Process) error
		exit   Exit
		err    error
		reason string
	}{
		"ended by SIGTERM":                    {kill, signaled(15), nil, reason},
		"ended by SIGKILL":                    {kill, signaled(9), nil, reason},
		"crashed meanwhile":                   {kill, signaled(11), nil, ""},
		"exited by itself":                    {kill, Exit{Outcome: fumehood.Exited}, nil, ""},
		"by SIGKILL of the caller":            {signal(9), signaled(9), nil, reason},
		"by another signal of the caller":     {signal(15), signaled(15), nil, ""},
		"by a caller in another process":      {signal(1), byOther, nil, reason},
		"by something else":                   {signal(1), signaled(9), nil, ""},
		"not known, because something failed": {kill, Exit{}, errors.New("the guest broke the protocol"), "the guest broke the protocol"},
		"not possible":                        {kill, Exit{}, nil, "this transport cannot kill the command"},
	} {
		t.Run(name, func(t *testing.T) {
			sb := New(&killable{exit: c.exit, err: c.err, ended: make(chan struct{})}, fumehood.Spec{}, nil)
			p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"x"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.how(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			res, err := p.Wait(t.Context())
			want := c.exit.Outcome
			if want == "" {
				want = fumehood.Lost
			}
			if err != nil || res.Outcome != want || res.Reason != c.reason {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}
