package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
)

const (
	// maxIdled is how many sandboxes of a lease are remembered that were removed because they were idle.
	maxIdled = 1000
	// removeTime is how long the removal of an idle sandbox may take.
	removeTime = time.Minute
)

// uses counts who uses something, and calls a function when nobody has for a time. Its owner's lock protects it.
type uses struct {
	number int
	after  time.Duration
	left   time.Time // when the last user left
	timer  *time.Timer
}

// watch begins to count. The function is called without the owner's lock, and asks unused.
func (u *uses) watch(after time.Duration, expire func()) {
	u.after, u.left, u.timer = after, time.Now(), time.AfterFunc(after, expire)
}

func (u *uses) enter() {
	u.number++
	u.timer.Stop()
}

func (u *uses) leave() {
	if u.number--; u.number == 0 {
		u.left = time.Now()
		u.timer.Reset(u.after)
	}
}

// unused reports whether the timer was right: a user may have come and left meanwhile.
func (u *uses) unused() bool { return u.number == 0 && time.Since(u.left) >= u.after }

// idled is a sandbox that was removed because nobody used it.
type idled struct {
	id    string
	after time.Duration
}

func (i idled) goneError() error {
	return &fumehood.Error{
		Op: "find sandbox " + i.id, Class: fumehood.ErrUnavailable,
		Err:  noSandbox{fmt.Errorf("removed: it had no call and no running command for its idle time of %v", i.after)},
		Hint: "start it with a longer idle, or none, up to the server's --idle",
	}
}

// idleTime returns the idle time of a sandbox, for which a client wants one or 0.
func (s *Server) idleTime(wanted time.Duration, keep bool) (time.Duration, error) {
	most := s.opts.Limits.Idle
	switch {
	case keep && wanted > 0:
		return 0, bad("a kept sandbox has a ttl_ms, and no idle_ms")
	case keep:
		return 0, nil
	case wanted == 0:
		return most, nil
	case most > 0 && wanted > most:
		return 0, limitError("check request", "idle", "start the server with a longer --idle", "a sandbox may be idle for %v", most)
	}
	return wanted, nil
}

// removeIdle removes the sandbox when it has had no call and no running command for a time.
func (h *held) removeIdle(after time.Duration) {
	if after == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uses.watch(after, h.expire)
}

// use keeps the sandbox from being idle until done is called, which is never nil.
func (h *held) use() (done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.idled:
		return func() {}, idled{h.id, h.uses.after}.goneError()
	case h.uses.timer == nil:
		return func() {}, nil
	}
	h.uses.enter()
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.uses.leave(); h.removed {
			h.uses.timer.Stop()
		}
	}), nil
}

// useWithin is use until the request of ctx has been answered.
func (h *held) useWithin(ctx context.Context) (*held, error) {
	h.mu.Lock()
	watched := h.uses.timer != nil
	h.mu.Unlock()
	if !watched { // what is called when ctx ends is held until then
		return h, nil
	}
	done, err := h.use()
	context.AfterFunc(ctx, done)
	return h, err
}

// unwatch ends the timer of a sandbox that is removed.
func (h *held) unwatch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removed = true
	if h.uses.timer != nil {
		h.uses.timer.Stop()
	}
}

// expire removes the sandbox if it is idle.
func (h *held) expire() {
	h.mu.Lock()
	h.idled = h.uses.unused() && !h.removed
	idle := h.idled
	h.mu.Unlock()
	if !idle {
		return
	}
	h.l.mu.Lock()
	h.l.idled = append(h.l.idled, idled{h.id, h.uses.after})
	h.l.idled = h.l.idled[max(len(h.l.idled)-maxIdled, 0):]
	h.l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.l.life), removeTime)
	defer cancel()
	log := h.s.opts.Logger.With("sandbox", h.id, "idle", h.uses.after)
	if err := h.end(ctx); err != nil { // the lease's end tries again
		log.Warn("an idle sandbox was not removed", "error", err)
		return
	}
	log.Info("an idle sandbox was removed")
}

// whyGone returns the error for a sandbox that was removed because it was idle, or nil.
func (l *lease) whyGone(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.idled, func(i idled) bool { return i.id == id }); i >= 0 {
		return l.idled[i].goneError()
	}
	return nil
}

// reuse forgets that a sandbox with the same name was removed. The caller has the lock.
func (l *lease) reuse(id string) {
	l.idled = slices.DeleteFunc(l.idled, func(i idled) bool { return i.id == id })
}
