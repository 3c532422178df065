package conformance

import (
	"errors"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/probe"
)

// slack is how many times longer than planned something may take before the check fails. The suite runs on shared, slow
// machines.
const slack = 30

// within is the longest wait for something that should happen at once.
const within = 2 * time.Minute

// Eventually waits until cond is true. It fails t after two minutes.
func Eventually(t *testing.T, condition string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(probe.Beat)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("timeout after %v: %s", within, condition)
		case <-tick.C:
		}
	}
}

// soon runs f in another goroutine. It fails t if f does not return within two minutes.
func soon(t *testing.T, action string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(within):
		t.Fatalf("timeout after %v: %s", within, action)
	}
}

// WantError checks that err matches each of classes, and that its class (see fumehood.ClassOf) is classes[0] or a
// narrower one.
func WantError(t *testing.T, err error, classes ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one of class %q", classes[0])
	}
	for _, c := range classes {
		if !errors.Is(err, c) {
			t.Fatalf("the error does not match %q: %v", c, err)
		}
	}
	if got := fumehood.ClassOf(err); !errors.Is(got, classes[0]) {
		t.Fatalf("the error's class is %q, want %q: %v", got, classes[0], err)
	}
}

// size returns the size of a file in the sandbox, or -1 if there is no such file.
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

// Exists waits until a file in the promise's directory exists.
func (c *Case) Exists(t *testing.T, name string) {
	t.Helper()
	Eventually(t, name+" exists", func() bool { return c.size(t, c.Path(name)) >= 0 })
}

// beats is how many new heartbeats prove that a process is alive. Another process without any in that time is dead.
const beats = 25

// look is the interval between two looks at a heartbeat's file. A provider may take long to describe a file.
const look = beats / 5 * probe.Beat

// await waits until cond is true, and calls it once per look. It fails t after two minutes.
func await(t *testing.T, condition string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("timeout after %v: %s", within, condition)
		}
	}
}

// sizes returns the sizes of files in the promise's directory, -1 for a file that does not exist.
func (c *Case) sizes(t *testing.T, names []string) []int64 {
	t.Helper()
	sizes := make([]int64, len(names))
	for i, name := range names {
		sizes[i] = c.size(t, c.Path(name))
	}
	return sizes
}

// Alive waits until the heartbeat in each file has continued. The files are in the promise's directory.
func (c *Case) Alive(t *testing.T, names ...string) {
	t.Helper()
	from := c.sizes(t, names)
	for i, name := range names {
		await(t, "the heartbeat "+name+" continues", func() bool { return c.size(t, c.Path(name)) >= from[i]+beats })
	}
}

// AwaitEnd waits until none of the named heartbeats makes progress while the clock does. The clock is a heartbeat that is
// alive, so a slow machine slows the proof too. The files are in the promise's directory.
func (c *Case) AwaitEnd(t *testing.T, clock string, names ...string) {
	t.Helper()
	deadline := time.Now().Add(within)
	for last := c.sizes(t, names); ; {
		c.Alive(t, clock)
		now := c.sizes(t, names)
		i := 0
		for ; i < len(names) && now[i] == last[i]; i++ {
			if now[i] == -1 {
				t.Fatalf("the heartbeat %s never started, so its end proves nothing", names[i])
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

// Stop ends heartbeats that nothing else ends. The files are in the promise's directory.
func (c *Case) Stop(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		c.Write(t, name+".stop", "")
	}
}
