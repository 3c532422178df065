package docker

import (
	"context"

	"github.com/fumehood/fumehood/internal/engine"
)

// question asks a daemon about itself.
type question struct {
	answered chan struct{} // closed when the others are set
	info     engine.Info
	err      error
}

// ask asks the daemon about itself, where it has not told yet. It does not wait: an Engine of 20.10 takes 30 ms and more.
func (p *Provider) ask(ctx context.Context) *question {
	p.asking.Lock()
	defer p.asking.Unlock()
	if q := p.asked; q != nil {
		select {
		case <-q.answered:
			if q.err == nil {
				return q
			}
		default:
			return q
		}
	}
	q := &question{answered: make(chan struct{})}
	p.asked = q
	go func() {
		defer close(q.answered)
		q.info, q.err = p.engine.Info(context.WithoutCancel(ctx)) // others may wait for it too
	}()
	return q
}

// info is what the daemon says of itself.
func (p *Provider) info(ctx context.Context) (engine.Info, error) {
	q := p.ask(ctx)
	select {
	case <-q.answered:
		return q.info, q.err
	case <-ctx.Done():
		return engine.Info{}, ctx.Err()
	}
}
