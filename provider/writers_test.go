package provider

import (
	"context"
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
)

// early is a command that has delivered its output and ended before Start returns.
type early struct {
	stub
	ended
}

func (b *early) Service(string) ServiceBackend { return b }

func (b *early) Start(_ context.Context, _ fumehood.Cmd, _ bool, out Sink) (ProcessBackend, error) {
	out(fumehood.Stdout, []byte("x"))
	return b.ended, nil
}

func (ended) Kill(context.Context) bool { return true }

func (b *early) Files(user string) FileBackend { return b.stub.Files(user) }

type full struct{}

var errFull = errors.New("the disk is full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestExec_earlyWriterError(t *testing.T) {
	sb := New(&early{}, fumehood.Spec{}, nil)
	for range 100 {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"x"}, Stdout: full{}})
		if !errors.Is(err, errFull) || !errors.Is(err, fumehood.ErrConfig) || res != nil {
			t.Fatalf("got %+v, %v", res, err)
		}
	}
}

func TestStart_detachedWriters(t *testing.T) {
	_, err := New(&early{}, fumehood.Spec{}, nil).Start(t.Context(), fumehood.Cmd{Args: []string{"x"}, Stderr: full{}, Detach: true})
	if !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
}
