package docker

import (
	"context"
	"errors"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
)

// holding is the question to a daemon which limits it holds.
type holding struct {
	answered chan struct{} // closed when the others are set
	holds    engine.Holds
	err      error
}

// ask asks the daemon which limits it holds, where it has not told yet. It does not wait: an Engine of 20.10 takes 30 ms and
// more.
func (p *Provider) ask(ctx context.Context) *holding {
	p.asking.Lock()
	defer p.asking.Unlock()
	if h := p.askedOf; h != nil {
		select {
		case <-h.answered:
			if h.err == nil {
				return h
			}
		default:
			return h
		}
	}
	h := &holding{answered: make(chan struct{})}
	p.askedOf = h
	go func() {
		defer close(h.answered)
		var info engine.Info
		info, h.err = p.engine.Info(context.WithoutCancel(ctx)) // others may wait for it too
		h.holds = info.Holds
	}()
	return h
}

// holding waits for what the daemon says of the limits that it holds.
func (p *Provider) holding(ctx context.Context) (engine.Holds, error) {
	h := p.ask(ctx)
	select {
	case <-h.answered:
		return h.holds, h.err
	case <-ctx.Done():
		return engine.Holds{}, ctx.Err()
	}
}

// unheld notes, where that is allowed, which limits the daemon does not hold.
func (sb *sandbox) unheld(holds engine.Holds) compose.Unheld {
	if !sb.p.opts.AllowUnenforcedLimits {
		return compose.Unheld{}
	}
	sb.of.Unenforced = unheldOf(holds, true, true, true)
	if len(sb.of.Unenforced) > 0 {
		sb.p.loggerOf(sb.spec).Warn("the daemon cannot hold limits, as the run allows", "sandbox", sb.spec.Name, "limits", strings.Join(sb.of.Unenforced, " "))
	}
	return compose.Unheld{Memory: !holds.Memory, CPUs: !holds.CPUs}
}

// checkLimits refuses a project whose limits the daemon does not hold, unless that is allowed.
func (sb *sandbox) checkLimits(project *compose.Project, holds engine.Holds) error {
	if sb.p.opts.AllowUnenforcedLimits {
		return nil
	}
	memory, pids, cpus := project.Limited()
	if names := unheldOf(holds, memory, pids, cpus); len(names) > 0 {
		return refuseUnheld("the daemon cannot hold limits: " + strings.Join(names, ", "))
	}
	return nil
}

func refuseUnheld(why string) error {
	return &fumehood.Error{Op: "create container", Class: fumehood.ErrUnsupported, Err: errors.New(why), Hint: engine.UnheldHint}
}

// unheldOf names the limits that are asked for and not held.
func unheldOf(holds engine.Holds, memory, pids, cpus bool) (names []string) {
	for _, l := range []struct {
		name        string
		asked, held bool
	}{{"memory", memory, holds.Memory}, {"swap", memory, holds.Swap}, {"pids", pids, holds.PIDs}, {"cpus", cpus, holds.CPUs}} {
		if l.asked && !l.held {
			names = append(names, l.name)
		}
	}
	return names
}

// unheld refuses a container of which the daemon has said that it does not hold something, or logs that.
func (o Options) unheld(labels map[string]string, warnings []string) error {
	if !o.AllowUnenforcedLimits {
		return refuseUnheld("the daemon does not hold all that was asked for: " + strings.Join(warnings, " "))
	}
	o.Logger.Warn("the daemon does not hold all that was asked for, as the run allows", "sandbox", labels[engine.LabelSandbox], "daemon", strings.Join(warnings, " "))
	return nil
}
