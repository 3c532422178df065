package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance/probe"
)

// slack is how many times longer than planned something may take before that is a failure: the
// machines that run this are shared and slow.
const slack = 10

// within bounds the waiting for something that should happen at once.
const within = 30 * time.Second

// Eventually waits until cond is true, and fails t when it is not within half a minute.
func Eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(probe.Beat)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}

// soon runs f, which must return within half a minute.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(within):
		t.Fatalf("not within %v: %s", within, what)
	}
}

// WantError checks that err matches each class, and exactly one of the widest.
func WantError(t *testing.T, err error, classes ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one of class %q", classes[0])
	}
	for _, c := range classes {
		if !errors.Is(err, c) {
			t.Fatalf("the error is no %q: %v", c, err)
		}
	}
	if got := fumehood.ClassOf(err); !errors.Is(got, classes[0]) {
		t.Fatalf("the error's class is %q, want %q: %v", got, classes[0], err)
	}
}

// size is the size of a file in the sandbox, -1 where there is none.
func (c *Case) size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := c.Sandbox.Stat(t.Context(), path)
	if errors.Is(err, fumehood.ErrNotFound) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.Size
}

// Exists waits until a file of the promise's directory is there.
func (c *Case) Exists(t *testing.T, name string) {
	t.Helper()
	Eventually(t, name+" is there", func() bool { return c.size(t, c.Path(name)) >= 0 })
}

// beats is how many heartbeats count as proof, of life or against it.
const beats = 25

// Alive waits until the heartbeat in each file goes on. The files are of the promise's directory.
func (c *Case) Alive(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		from := c.size(t, c.Path(name))
		Eventually(t, "the heartbeat "+name+" goes on", func() bool { return c.size(t, c.Path(name)) >= from+beats })
	}
}

// Ended waits until none of the heartbeats has stirred while the clock, a heartbeat that is alive, went
// on for long: so a slow machine slows the proof too. The files are of the promise's directory.
func (c *Case) Ended(t *testing.T, clock string, names ...string) {
	t.Helper()
	last := map[string]int64{}
	since := c.size(t, c.Path(clock))
	var stirred string
	deadline := time.Now().Add(within)
	Eventually(t, "the heartbeats have ended", func() bool {
		for _, name := range names {
			n := c.size(t, c.Path(name))
			if n == -1 {
				t.Fatalf("the heartbeat %s never began, so its end proves nothing", name)
			}
			if was, ok := last[name]; !ok || was != n {
				last[name], stirred = n, name
				since = c.size(t, c.Path(clock))
			}
		}
		if time.Until(deadline) < within/10 {
			t.Fatalf("still running after %v: %s", within, stirred)
		}
		return c.size(t, c.Path(clock)) >= since+beats
	})
}

// Stop ends heartbeats that nothing else ends. The files are of the promise's directory.
func (c *Case) Stop(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		c.Write(t, name+".stop", "")
	}
}
