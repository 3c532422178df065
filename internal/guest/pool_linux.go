package guest

import (
	"encoding/json"
	"errors"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

const (
	// maxIdle is how many workers without a command are kept for the next commands.
	maxIdle = 4
	// trimAfter is how long more than that are kept, so that many commands at once do not each need a new
	// one.
	trimAfter = time.Second
)

// supervisor is a guest's view of one worker.
type supervisor struct {
	pid    int
	stat   int // its /proc/PID/stat, while it is among the guest's workers
	socket *wire.Socket
	notes  chan note     // closed when the worker is gone
	since  atomic.Uint64 // from when on processes may be its command's, in ticks since boot
	dead   chan struct{} // closed when its process was reaped
	swept  chan struct{} // closed when what it left was killed too

	survivors int // of that; set before swept is closed
}

// worker returns an idle worker, or a new one.
func (g *guest) worker() (*supervisor, error) {
	g.mu.Lock()
	for len(g.idle) > 0 {
		w := g.idle[len(g.idle)-1]
		g.idle = g.idle[:len(g.idle)-1]
		if !g.sound(w) { // a command has hit it
			w.retire()
			continue
		}
		g.mu.Unlock()
		return w, nil
	}
	g.mu.Unlock()
	return g.spawn()
}

// sound reports whether an idle worker can take a command. One that was stopped, or whose limits were changed, is ended,
// since who did it may do so again. g.mu is held, so that its pid is its own.
func (g *guest) sound(w *supervisor) bool {
	if g.workers[w.pid] != w {
		return false
	}
	switch f := fieldsAt(w.stat); {
	case f == nil || f[0] == "Z" || f[0] == "X" || pendingKill(f):
		return false
	case stopped(f), limitsOf(w.pid) != g.limits:
		_ = unix.Kill(w.pid, unix.SIGKILL)
		return false
	}
	return true
}

// limits are the resource limits of a process that programs meet, the first ten. A process of the same user may lower
// them, see prlimit(2): the next command would get them from its worker.
type limits [unix.RLIMIT_AS + 1]unix.Rlimit

// limitsOf asks the kernel past Go's scheduler, for it answers at once, and each command waits for this.
func limitsOf(pid int) (l limits) {
	for resource := range l {
		// Of a process that has ended they are zero.
		_, _, _ = unix.RawSyscall6(unix.SYS_PRLIMIT64, uintptr(pid), uintptr(resource), 0, uintptr(unsafe.Pointer(&l[resource])), 0, 0)
	}
	return l
}

const (
	// pressFirst and pressLast are the first and the longest time between two looks at a worker.
	pressFirst, pressLast = 50 * time.Millisecond, time.Second
	// mostStops is how often a worker is found stopped before it is killed.
	mostStops = 8
)

// press sees to it that a worker goes on until done: what it runs can stop it, as a process of the same
// user. Where that happens again and again the worker is killed, and what it owns is swept.
func (g *guest) press(w *supervisor, longest time.Duration, done <-chan struct{}) {
	t := time.NewTimer(0)
	defer t.Stop()
	for pause, stops := pressFirst, 0; ; pause = min(2*pause, longest) {
		select {
		case <-done:
			return
		case <-w.dead:
			return
		case <-t.C:
		}
		g.mu.Lock()
		if g.workers[w.pid] == w && stopped(fieldsAt(w.stat)) {
			if stops++; stops < mostStops {
				_ = unix.Kill(w.pid, unix.SIGCONT)
			} else {
				_ = unix.Kill(w.pid, unix.SIGKILL)
			}
			pause = pressFirst
		}
		g.mu.Unlock()
		t.Reset(pause)
	}
}

// now is the time in ticks since boot, as the start of a process is told; 0 where it cannot be had.
func now() uint64 {
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture that we build for
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano() / int64(tick)) //nolint:gosec // not negative
}

// spawn starts a worker.
func (g *guest) spawn() (*supervisor, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(theirs)
	socket, err := wire.NewSocket(ours)
	if err != nil {
		return nil, err
	}
	null := g.null.Fd()
	attr := &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"}, Sys: &syscall.SysProcAttr{Setsid: true},
		Files: []uintptr{null, null, null, uintptr(theirs)},
	}
	g.mu.Lock() // so that it is not reaped before it is known
	defer g.mu.Unlock()
	args := []string{g.self, "worker", strconv.Itoa(g.slack)}
	if !contained.Load() {
		args = append(args, uncontained)
	}
	pid, err := syscall.ForkExec(g.self, args, attr)
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	stat, err := openStat(pid)
	if err != nil {
		_ = socket.Close() // so that it ends
		return nil, err
	}
	w := &supervisor{pid: pid, stat: stat, socket: socket, notes: make(chan note, 16), dead: make(chan struct{}), swept: make(chan struct{})}
	w.since.Store(math.MaxUint64)
	g.workers[pid] = w
	go w.listen()
	return w, nil
}

// listen passes the worker's notes on until it is gone.
func (w *supervisor) listen() {
	defer close(w.notes)
	dec := json.NewDecoder(w.socket)
	for {
		var n note
		if dec.Decode(&n) != nil {
			return
		}
		w.notes <- n
	}
}

// release takes a worker back that has no descendant left.
func (g *guest) release(w *supervisor) {
	w.since.Store(math.MaxUint64)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		w.retire()
		return
	}
	g.idle = append(g.idle, w)
	if len(g.idle) > maxIdle && !g.trimming {
		g.trimming = true
		time.AfterFunc(trimAfter, g.trim)
	}
}

// trim has all but maxIdle of the idle workers end.
func (g *guest) trim() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trimming = false
	if n := len(g.idle) - maxIdle; n > 0 {
		for _, w := range g.idle[:n] {
			w.retire()
		}
		g.idle = slices.Delete(g.idle, 0, n)
	}
}

// retire has a worker end, and its command with it.
func (w *supervisor) retire() {
	_ = w.socket.Close() // the worker reads its end
	go func() {
		for range w.notes { // so that listen ends
		}
	}()
}

// left waits until a worker that has died is swept after, and tells how many processes could not be killed.
func (w *supervisor) left() (survivors int) {
	w.retire() // should it live all the same
	<-w.swept
	return w.survivors
}

// reap takes the statuses of what has ended: workers, and orphans of workers that were killed. It reports
// whether no child is left.
func (g *guest) reap() (none bool) {
	for {
		g.mu.Lock()
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WALL, nil)
		w := g.workers[pid]
		if w != nil {
			delete(g.workers, pid)
			_ = unix.Close(w.stat)
			close(w.dead)
		}
		closing := g.closing
		g.mu.Unlock()
		switch {
		case errors.Is(err, unix.EINTR):
		case pid <= 0:
			return errors.Is(err, unix.ECHILD)
		case w != nil && !closing:
			w.survivors = g.sweepAfter(w)
			close(w.swept)
		case w != nil:
			close(w.swept)
		}
	}
}

// sweepAfter kills what a worker left that was killed: its command's processes are orphans now, and have
// become children of this process. Other orphans may be there too, of commands that the Engine started
// and that have ended: those that began before the worker's command are theirs.
func (g *guest) sweepAfter(w *supervisor) (survivors int) {
	self := os.Getpid()
	orphans := func() iter.Seq[int] { return g.orphans(self, w.since.Load(), nil) }
	looks := 0
	kill(self, func() iter.Seq[int] { return killable(orphans()) }, func() bool {
		before := unseen.Load()
		left := slices.Collect(killable(orphans()))
		g.mu.Lock()
		for _, pid := range left {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil) // it may live, or be another's child
		}
		g.mu.Unlock()
		if looks++; len(left) > 0 || unseen.Load() != before {
			looks = 0
		}
		return looks >= emptyLooks
	})
	return living(orphans()) // those that this process may not kill among them
}

// emptyLooks is how often nothing must be found, for the kernel's lists of children are not made at one
// instant.
const emptyLooks = 5
