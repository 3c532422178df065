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
)

// Watch follows the events of the containers that carry one label, over one connection, and remembers
// what they tell. It is how readiness, death and out-of-memory strikes are learned without asking again
// and again.
type Watch struct {
	c      *Client
	cancel context.CancelFunc

	running sync.WaitGroup

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at every change
	doubted    chan struct{} // closed and replaced when the connections are found to miss events
	containers map[string]ContainerState
	execs      map[string]chan struct{} // by exec id: closed when it has died
}

// ContainerState is what the events of a container told so far.
type ContainerState struct {
	Started bool
	Died    bool
	Deaths  int // how often that was reported; twice for one, perhaps, where the connection broke
	Exit    int // the last exit code, where there were any
	// Alone says that it has died last without anybody who had the Engine signal or stop it; Alones is how often it has.
	Alone  bool
	Alones int
	told   bool // somebody has, or it is not known: the connection broke meanwhile
	Paused bool // nothing in it runs until it is unpaused
	OOMs   int  // how often the out-of-memory killer was reported
	Before int  // how often of that before its last start
	// Health is what the checks have found since the start: empty while they have found nothing, Healthy or
	// Unhealthy.
	Health string
}

// What health checks find.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// Watch starts to follow. label is "name=value". It goes on until Close, and connects again by itself.
func (c *Client) Watch(ctx context.Context, label string) *Watch {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watch{
		c: c, cancel: cancel, changed: make(chan struct{}), doubted: make(chan struct{}),
		containers: map[string]ContainerState{}, execs: map[string]chan struct{}{},
	}
	w.run(ctx, label)
	return w
}

// Also follows the containers that carry another label too, until stop is called.
func (w *Watch) Also(ctx context.Context, label string) (stop func()) {
	ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	w.run(ctx, label)
	return stop
}

// run follows the containers that carry a label until ctx ends.
func (w *Watch) run(ctx context.Context, label string) {
	since := time.Now()
	first, end := w.subscribe(ctx, label, "")
	w.running.Go(func() {
		res := first
		for {
			_ = w.follow(res) // whatever ended it, it connects again
			end()
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			// What happened while nobody listened comes again, some of it a second time: only the
			// count of out-of-memory strikes could be wrong by that, and one is as good as two.
			w.missed()
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

// errMissing is the reason to give up a connection that misses events.
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
		s.Started, s.Died, s.Paused, s.Health, s.Before, s.Alone, s.told = true, false, false, "", s.OOMs, false, false
	case events.ActionPause, events.ActionUnPause:
		s.Paused = m.Action == events.ActionPause
	case events.ActionKill, events.ActionStop, events.ActionRestart:
		s.told = true
	case events.ActionDie:
		if s.Died, s.Alone = true, !s.told; s.Alone {
			s.Alones++
		}
		s.Deaths++
		s.Exit, _ = strconv.Atoi(m.Actor.Attributes["exitCode"]) // 0 where an Engine tells none
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
		if !ok || found != Healthy && found != Unhealthy {
			return
		}
		s.Health = found
	}
	w.containers[id] = s
	w.notify()
}

// missed notes that events may have been missed.
func (w *Watch) missed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.containers {
		s.told = true
		w.containers[id] = s
	}
}

// notify wakes all who wait; w.mu is held.
func (w *Watch) notify() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// State returns what is known of a container, by its full id.
func (w *Watch) State(id string) ContainerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.containers[id]
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

// Forget drops what ExecDied holds.
func (w *Watch) Forget(exec string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.execs, exec)
}

// Await waits until the state of a container satisfies, at most the given time, and returns the last one
// that was seen. It outlives the cancellation of ctx.
func (w *Watch) Await(ctx context.Context, id string, wait time.Duration, satisfies func(ContainerState) bool) ContainerState {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait)
	defer cancel()
	s, _ := w.Until(ctx, id, satisfies)
	return s
}

// doubtAfter is how long nothing may be told of a container that is waited for until it is asked for: a connection can
// be dead, and nobody says so.
const doubtAfter = 5 * time.Second

// Until waits until the state of a container satisfies, and returns the last one; false where ctx ended
// first.
func (w *Watch) Until(ctx context.Context, id string, satisfies func(ContainerState) bool) (ContainerState, bool) {
	for {
		w.mu.Lock()
		s, changed := w.containers[id], w.changed
		w.mu.Unlock()
		if satisfies(s) {
			return s, true
		}
		doubt := time.NewTimer(w.c.speedup.Of(doubtAfter))
		select {
		case <-changed:
		case <-doubt.C:
			w.ask(ctx, id, s)
		case <-ctx.Done():
			doubt.Stop()
			s = w.State(id) // both may have come
			return s, satisfies(s)
		}
		doubt.Stop()
	}
}

// ask asks for the state of a container of which the events told before. Where they have missed something, they are
// connected to again.
func (w *Watch) ask(ctx context.Context, id string, before ContainerState) {
	now, err := w.c.Inspect(ctx, id)
	if err != nil || now.Status == "created" {
		return // who waits has a limit
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.containers[id]
	if s != before {
		return // an event came
	}
	s.Started, s.Died, s.Paused, s.Health = true, !now.Running, now.Status == "paused", ""
	if s.Died {
		s.Exit = now.ExitCode
	}
	if s.Died && !before.Died {
		s.Deaths++
	}
	if now.Health == Healthy || now.Health == Unhealthy {
		s.Health = now.Health
	}
	if s.Died && s.Health == "" {
		s.Health = before.Health // a dead one has none
	}
	if s == before {
		return
	}
	s.told = true
	w.containers[id] = s
	w.notify()
	close(w.doubted)
	w.doubted = make(chan struct{})
}

// Close stops following and waits for that. What Also follows has to be stopped before.
func (w *Watch) Close() {
	w.cancel()
	w.running.Wait()
}
