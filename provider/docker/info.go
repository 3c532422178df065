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

// ask asks the daemon about itself, where it has not told yet, and does not wait. It is asked for what nothing else tells
// only: an Engine of 20.10 starts three programs for an answer, and takes locks of its networks in an order in which it hung for
// ever when it was asked often while networks came and went.
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

// holds says which limits the daemon holds. One that is root on this machine need not be asked: what it does not hold, it
// says when a container is created. One without control groups, which is rootless, says nothing then.
func (p *Provider) holds(ctx context.Context) (engine.Holds, error) {
	if !p.opts.AllowUnenforcedLimits && p.engine.Rootful() {
		return engine.Holds{Memory: true, Swap: true, PIDs: true, CPUs: true}, nil
	}
	info, err := p.info(ctx)
	return info.Holds, err
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
