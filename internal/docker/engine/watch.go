package engine

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood/internal/box"
)

// Watch follows the events of the containers with one label, over one connection, and stores the resulting states. It
// reports readiness, deaths and out-of-memory kills without polling.
type Watch struct {
	c      *Client
	cancel context.CancelFunc

	running sync.WaitGroup

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at every change
	doubted    chan struct{} // closed and replaced when the connections turn out to miss events
	containers map[string]containerState
	execs      map[string]chan struct{} // by exec id: closed when the exec has died
}

// containerState is the state of a container according to its events so far.
type containerState struct {
	box.State
	signaled bool // signaled or stopped since its start, or unknown after a reconnect
}

// Watch starts following events. label is "name=value". The Watch reconnects by itself, and runs until Close.
func (c *Client) Watch(ctx context.Context, label string) *Watch {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watch{
		c: c, cancel: cancel, changed: make(chan struct{}), doubted: make(chan struct{}),
		containers: map[string]containerState{}, execs: map[string]chan struct{}{},
	}
	w.followEvents(ctx, label)
	return w
}

// Also follows the containers with another label too, until stop is called.
func (w *Watch) Also(ctx context.Context, label string) (stop func()) {
	ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	w.followEvents(ctx, label)
	return stop
}

// Runs records that a container runs whose start was before the Watch follows it, so that its death can be awaited.
func (w *Watch) Runs(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.containers[id]; !ok {
		w.containers[id] = containerState{State: box.State{Lives: true}}
	}
}

// followEvents follows the containers with a label until ctx ends.
func (w *Watch) followEvents(ctx context.Context, label string) {
	since := time.Now()
	first, end := w.subscribe(ctx, label, "")
	w.running.Go(func() {
		res := first
		for {
			_ = w.follow(res) // reconnects whatever the reason
			end()
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			// Events from the time without a connection are sent again, some of them twice. Only the count of
			// out-of-memory kills could become wrong, and one is as good as two.
			w.markMissed()
			again := since.Add(-time.Second)
			since = time.Now()
			res, end = w.subscribe(ctx, label, strconv.FormatInt(again.Unix(), 10))
		}
	})
}

func (w *Watch) subscribe(ctx context.Context, label, since string) (res client.EventsResult, end context.CancelFunc) {
	ctx, end = context.WithCancel(ctx)
	return w.c.api.Events(ctx, client.EventsListOptions{
		Since:   since,
		Filters: make(client.Filters).Add("type", string(events.ContainerEventType)).Add("label", label),
	}), end
}

// errMissing is the reason to abandon a connection that misses events.
var errMissing = errors.New("events are missing")

func (w *Watch) follow(res client.EventsResult) error {
	w.mu.Lock()
	doubted := w.doubted
	w.mu.Unlock()
	for {
		select {
		case m := <-res.Messages:
			w.take(m)
		case err := <-res.Err:
			return err
		case <-doubted:
			return errMissing
		}
	}
}

func (w *Watch) take(m events.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := m.Actor.ID
	s := w.containers[id]
	switch m.Action {
	case events.ActionStart:
		s.Lives, s.Died, s.Paused, s.Health, s.Before, s.Alone, s.signaled, s.Signaled = true, false, false, "", s.OOMs, false, false, false
	case events.ActionPause, events.ActionUnPause:
		s.Paused = m.Action == events.ActionPause
	case events.ActionKill, events.ActionStop, events.ActionRestart:
		s.signaled, s.Signaled = true, true
	case events.ActionDie:
		if s.Lives, s.Died, s.Alone = false, true, !s.signaled; s.Alone {
			s.Ends++
		}
		s.Deaths++
		s.Exit, _ = strconv.Atoi(m.Actor.Attributes["exitCode"]) // 0 if the Engine does not report one
	case events.ActionOOM:
		s.OOMs++
	case events.ActionDestroy:
		delete(w.containers, id)
		return
	case events.ActionExecDie:
		exec := m.Actor.Attributes["execID"]
		if ch, ok := w.execs[exec]; ok {
			close(ch)
			delete(w.execs, exec)
		}
		return
	default:
		found, ok := strings.CutPrefix(string(m.Action), string(events.ActionHealthStatus)+": ")
		if !ok || found != box.Healthy && found != box.Unhealthy {
			return
		}
		s.Health = found
	}
	w.containers[id] = s
	w.notify()
}

// markMissed records that events may have been missed.
func (w *Watch) markMissed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.containers {
		s.signaled = true
		w.containers[id] = s
	}
}

// notify wakes all waiters; w.mu must be held.
func (w *Watch) notify() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// State returns the state of a container, by its full id.
func (w *Watch) State(id string) box.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.containers[id].State
}

// ExecDied returns a channel that is closed when the exec is reported to have ended after this call.
func (w *Watch) ExecDied(exec string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch, ok := w.execs[exec]
	if !ok {
		ch = make(chan struct{})
		w.execs[exec] = ch
	}
	return ch
}

// Forget releases the channel of ExecDied.
func (w *Watch) Forget(exec string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.execs, exec)
}

// Await waits until satisfies returns true for the state of a container, but at most for the given time. It returns
// the last state. It ignores the cancellation of ctx.
func (w *Watch) Await(ctx context.Context, id string, wait time.Duration, satisfies func(box.State) bool) box.State {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	s, _ := w.Until(ctx, id, satisfies)
	return s
}

// doubtAfter is how long Until waits without an event before it inspects the container. A dead connection may go
// unnoticed.
const doubtAfter = 5 * time.Second

// Until waits until satisfies returns true for the state of a container, and returns the last state. The result is
// false if ctx ended first.
func (w *Watch) Until(ctx context.Context, id string, satisfies func(box.State) bool) (box.State, bool) {
	for {
		w.mu.Lock()
		s, changed := w.containers[id], w.changed
		w.mu.Unlock()
		if satisfies(s.State) {
			return s.State, true
		}
		doubt := time.NewTimer(w.c.speedup.Of(doubtAfter))
		select {
		case <-changed:
		case <-doubt.C:
			w.ask(ctx, id, s)
		case <-ctx.Done():
			doubt.Stop()
			now := w.State(id) // both may have happened
			return now, satisfies(now)
		}
		doubt.Stop()
	}
}

// ask inspects a container and compares it with the state from the events. If events were missed, it updates the
// state and makes the connections reconnect.
func (w *Watch) ask(ctx context.Context, id string, before containerState) {
	now, err := w.c.Inspect(ctx, id)
	if err != nil || now.Status == created {
		return // the waiter has its own limit
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.containers[id]
	if s != before {
		return // an event arrived meanwhile
	}
	s.Lives, s.Died, s.Paused, s.Health = now.Running, !now.Running, now.Status == "paused", ""
	if s.Died {
		s.Exit = now.ExitCode
	}
	if s.Died && !before.Died {
		s.Deaths++
	}
	if now.Health == box.Healthy || now.Health == box.Unhealthy {
		s.Health = now.Health
	}
	if s.Died && s.Health == "" {
		s.Health = before.Health // the Engine reports no health of a dead container
	}
	if s == before {
		return
	}
	s.signaled = true
	w.containers[id] = s
	w.notify()
	close(w.doubted)
	w.doubted = make(chan struct{})
}

// Close stops following and waits until that is done. Stop what Also follows before.
func (w *Watch) Close() {
	w.cancel()
	w.running.Wait()
}
