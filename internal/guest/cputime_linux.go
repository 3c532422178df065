package guest

import (
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

const (
	// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every supported architecture.
	tick = 10 * time.Millisecond
	// lookMost and lookLeast bound the time between two looks at a command's processor time.
	lookMost, lookLeast = 250 * time.Millisecond, 5 * time.Millisecond
	// lookShare is how much longer than a look the time between two of them is.
	lookShare = 10
	// groupSlack is how much more than the limit the control group may have used, since not all of it is the command's: a worker
	// that starts, for example.
	groupSlack = 100 * time.Millisecond
)

// processorTime watches the processor time of a command with a limit of it. There are two figures. That of the tree is the time
// of the processes that the worker has reaped and of the living ones. It misses children whose parent ignores SIGCHLD. That of
// the control group misses nothing, but it is the command's only as long as nothing else runs there.
type processorTime struct {
	c     *command
	limit time.Duration

	reaped time.Duration // by the worker, when the command was handed over
	group  time.Duration // what the control group had used then, without ours
	shared bool          // something else ran in the control group

	most time.Duration // the highest figure of the command so far
	over bool          // it was above the limit before anything else killed the command

	stop, stopped chan struct{}
}

// noCounter is why a command with a limit of processor time does not start.
var noCounter = &wire.Failed{What: wire.NoCounter, Text: "this sandbox has no control group that counts processor time"}

// limitProcessorTime prepares the limit of the command's processor time, if it has one.
func (c *command) limitProcessorTime() *wire.Failed {
	if c.req.CPUUS <= 0 {
		return nil
	}
	if c.g.cgroup.cpuTime.fd < 0 {
		return noCounter
	}
	c.cpu = &processorTime{
		c: c, limit: time.Duration(c.req.CPUUS) * time.Microsecond, shared: !c.g.isFirst(), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	return nil
}

// mark begins to count. The worker has no command yet.
func (t *processorTime) mark() {
	if t == nil {
		return
	}
	if w := t.c.worker(); w != nil {
		t.reaped = reapedTime(w)
		t.group = t.c.g.cgroup.usedTime() - ownTime() - livingIn(w)
	}
}

// watch kills the command when it exceeds its limit, until end is called.
func (t *processorTime) watch() {
	if t == nil {
		return
	}
	go func() {
		defer close(t.stopped)
		for {
			began := time.Now()
			if t.look(); t.most > t.limit {
				t.exceed()
				return
			}
			pause := max(min((t.limit-t.most)/time.Duration(runtime.NumCPU()), lookMost), lookLeast, lookShare*time.Since(began))
			select {
			case <-time.After(pause):
			case <-t.stop:
				return
			}
		}
	}()
}

// exceed kills the command, unless something else does already.
func (t *processorTime) exceed() {
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.killing && !c.over {
		t.over = true
		c.killNow(c.req.GraceMS)
	}
}

// end ends watch when the command's process has ended, and looks once more: it may have used more since the last look.
func (t *processorTime) end() {
	if t == nil {
		return
	}
	close(t.stop)
	<-t.stopped
	t.c.mu.Lock()
	killed := t.c.killing // then the cause of the kill counts, unless that is this limit
	t.c.mu.Unlock()
	if t.over || killed {
		return
	}
	t.look()
	t.over = max(t.most, t.c.cpuTime()) > t.limit
}

// excess returns the processor time of a command that has exceeded its limit, in microseconds; else 0. It is called when all
// that can be killed was.
func (t *processorTime) excess() int64 {
	if t == nil || !t.over {
		return 0
	}
	return max(t.most, t.c.cpuTime()).Microseconds()
}

// cpuTime returns the processor time of the command's processes that have ended, as the worker reported last.
func (c *command) cpuTime() time.Duration {
	return time.Duration(c.userUS+c.systemUS) * time.Microsecond
}

// look reads the figures. The order matters: a process that ends meanwhile may be missed, but is not counted twice.
func (t *processorTime) look() {
	w := t.c.worker()
	if w == nil {
		return
	}
	used := reapedTime(w) - t.reaped
	for pid := range descendants(t.c.w.pid) {
		if f := statFields(pid); f != nil {
			used += livingIn(f) + reapedTime(f)
		}
	}
	if t.shared = t.shared || !t.c.alone() || t.c.g.visited(); !t.shared {
		if group := t.c.g.cgroup.usedTime() - ownTime() - livingIn(w) - t.group; group > t.limit+groupSlack {
			used = max(used, group)
		}
	}
	t.most = max(t.most, used)
}

// worker returns the fields of the command's worker; nil if it is gone.
func (c *command) worker() []string {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if c.g.workers[c.w.pid] != c.w {
		return nil
	}
	return fieldsAt(c.w.stat)
}

// livingIn returns the processor time of a process itself, with all its threads, from its fields.
func livingIn(f []string) time.Duration { return ticksIn(f, 14) + ticksIn(f, 15) }

// reapedTime returns the processor time of the processes that a process has reaped, and of those that they had.
func reapedTime(f []string) time.Duration { return ticksIn(f, 16) + ticksIn(f, 17) }

func ticksIn(f []string, field int) time.Duration {
	n, _ := strconv.ParseInt(f[field-3], 10, 64) // the kernel writes a number
	return time.Duration(n) * tick
}

// ownTime returns the processor time of this process.
func ownTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// usedTime returns the processor time of the control group.
func (c cgroup) usedTime() time.Duration { return time.Duration(c.cpuTime.read()) * c.cpuUnit }

// isFirst reports whether this program is its container's main one. Otherwise the service's own program runs beside it.
func (g *guest) isFirst() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.program == nil && (os.Getpid() == 1 || os.Getppid() == 1)
}

// visited reports whether a process runs in the container that came from outside, such as another user's guest or a health
// check.
func (g *guest) visited() bool {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, process := range all {
		pid, err := strconv.Atoi(process.Name())
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		if f := statFields(pid); f != nil && parentIn(f) == 0 {
			return true
		}
	}
	return false
}
