package provider

import (
	"context"
	"testing"

	"github.com/fumehood/fumehood"
)

// lister is a kept sandbox that starts commands while its detached commands are listed.
type lister struct {
	stub
	meanwhile func()
}

func (b *lister) Service(string) ServiceBackend { return b }

func (b *lister) Start(context.Context, fumehood.Cmd, bool, Sink) (ProcessBackend, error) {
	return ended{}, nil
}

func (b *lister) Detached(context.Context) ([]DetachedInfo, error) {
	if b.meanwhile != nil {
		b.meanwhile()
	}
	return nil, nil
}

func (b *lister) Join(context.Context, DetachedInfo, Sink) (DetachedBackend, error) {
	return nil, fumehood.ErrUnsupported
}

// ended is a command that has ended.
type ended struct{ ProcessBackend }

func (ended) Wait(context.Context) (Exit, error) { return Exit{Outcome: fumehood.Exited}, nil }
func (ended) CloseStdin() error                  { return nil }

func TestRefreshProcesses_concurrentStart(t *testing.T) {
	b := &lister{}
	sb := New(b, fumehood.Spec{}, nil)
	start := func() {
		p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"x"}, Detach: true})
		if err == nil {
			_, err = p.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	start()
	b.meanwhile = start
	if err := sb.RefreshProcesses(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The first is not in the list: another process has forgotten it.
	if all := sb.Processes(); len(all) != 1 || all[0].Info().ID != 2 {
		t.Errorf("%d are listed", len(all))
	}
}
