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
const slack = 30

// within bounds the waiting for something that should happen at once.
const within = 2 * time.Minute

// Eventually waits until cond is true, and fails t when it is not within two minutes.
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

// soon runs f, which must return within two minutes.
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

// look is how often a heartbeat is looked at. A provider may need long to describe a file.
const look = beats / 5 * probe.Beat

// await waits until cond is true, which it asks every look, and fails t when it is not within two minutes.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// sizes are the sizes of files of the promise's directory, -1 where there is none.
func (c *Case) sizes(t *testing.T, names []string) []int64 {
	t.Helper()
	sizes := make([]int64, len(names))
	for i, name := range names {
		sizes[i] = c.size(t, c.Path(name))
	}
	return sizes
}

// Alive waits until the heartbeat in each file goes on. The files are of the promise's directory.
func (c *Case) Alive(t *testing.T, names ...string) {
	t.Helper()
	from := c.sizes(t, names)
	for i, name := range names {
		await(t, "the heartbeat "+name+" goes on", func() bool { return c.size(t, c.Path(name)) >= from[i]+beats })
	}
}

// Ended waits until none of the heartbeats has stirred while the clock, a heartbeat that is alive, went
// on for long: so a slow machine slows the proof too. The files are of the promise's directory.
func (c *Case) Ended(t *testing.T, clock string, names ...string) {
	t.Helper()
	deadline := time.Now().Add(within)
	for last := c.sizes(t, names); ; {
		c.Alive(t, clock)
		now := c.sizes(t, names)
		i := 0
		for ; i < len(names) && now[i] == last[i]; i++ {
			if now[i] == -1 {
				t.Fatalf("the heartbeat %s never began, so its end proves nothing", names[i])
			}
		}
		if i == len(names) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still running after %v: %s", within, names[i])
		}
		last = now
	}
}

// Stop ends heartbeats that nothing else ends. The files are of the promise's directory.
func (c *Case) Stop(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		c.Write(t, name+".stop", "")
	}
}
