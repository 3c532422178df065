package guest

import (
	"errors"
	"iter"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// killAll kills the processes of the service, of all of its commands and whatever these left, and answers when they are gone.
// It spares the service's own program with all that this has started, the guests, and the workers. Processes that the guest of
// another user may kill, and this one may not, are left to that guest: the host asks each.
//
// Commands that begin meanwhile wait, so that they are not killed, and the kill comes to an end.
func (g *guest) killAll(s *wire.Stream) {
	<-g.prepared
	g.clearing.Lock()
	defer g.clearing.Unlock()
	for range cap(g.turns) {
		g.takeTurn()
	}
	g.kills.Add(1)
	left := g.clear()
	for range cap(g.turns) {
		g.endTurn()
	}
	answer(s, wire.KilledAll{Survivors: left})
}

// killedWithAll reports whether killAll has begun since the command did. It spares the service's own program.
func (c *command) killedWithAll() bool {
	return c.req.ID != wire.ProgramID && c.g.kills.Load() != c.kills
}

// clear kills the processes of killAll, and returns how many are left. They count until they have been reaped, since they take
// room in the sandbox's limit until then.
func (g *guest) clear() (left int) {
	began := time.Now()
	pause := reapPause
	for looks := 0; looks < emptyLooks; pause = min(2*pause, 20*time.Millisecond) {
		before := unseen.Load()
		if n := g.killOthers(time.Since(began) > standAfter || g.cgroup.tasks.read() > crowd); n > 0 || unseen.Load() != before {
			looks = 0
		} else {
			looks++
		}
		if time.Since(began) > killWithin+dieWithin {
			break
		}
		nap(pause)
	}
	return living(maps.Keys(g.others())) // including processes that this one may not kill
}

// killOthers stops the processes of killAll until a search finds no new one, so that they cannot fork faster than they are
// found, and kills them. With stand, all processes of the container are stopped meanwhile. It returns how many were there to be
// killed.
func (g *guest) killOthers(stand bool) (n int) {
	var still standstill
	defer still.end() // so that the workers reap
	if stand {
		still.begin(0)
	}
	found := map[int]uint64{}
	for range stopPasses {
		fresh := 0
		for pid, began := range g.others() {
			if found[pid] != began {
				found[pid] = began
				fresh++
				_ = sendTo(pid, began, unix.SIGSTOP) // SIGKILL follows
			}
		}
		if fresh == 0 {
			break
		}
	}
	for pid, began := range found {
		if err := sendTo(pid, began, unix.SIGKILL); !errors.Is(err, unix.EPERM) {
			n++
		}
	}
	return n
}

// sendTo sends a signal to a process that started at a time, as of startIn. It does nothing if that process is gone.
func sendTo(pid int, began uint64, sig unix.Signal) error {
	same := func() bool {
		f := statFields(pid)
		return f != nil && startIn(f) == began
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // an old kernel, or a seccomp filter
		if !same() {
			return nil
		}
		return unix.Kill(pid, sig)
	case err != nil:
		if !errors.Is(err, unix.EINVAL) {
			countUnseen(err)
		}
		return err
	}
	defer unix.Close(fd)
	if !same() {
		return nil
	}
	if err = unix.PidfdSendSignal(fd, sig, nil, 0); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		err = unix.Kill(pid, sig)
	}
	return err
}

// others returns the start times of the processes of killAll, by their ids.
func (g *guest) others() map[int]uint64 {
	self := os.Getpid()
	g.mu.Lock()
	spared := make(map[int]bool, len(g.workers))
	program := 0
	for pid, w := range g.workers {
		spared[pid] = true
		if w.program {
			program = pid
		}
	}
	g.mu.Unlock()
	var all iter.Seq[int]
	if contained.Load() && ownProcesses() {
		all = processes
	} else {
		all = descendants(self)
	}
	parents, began := map[int]int{}, map[int]uint64{}
	for pid := range all {
		if f := statFields(pid); f != nil {
			parents[pid], began[pid] = parentIn(f), startIn(f)
		}
	}
	p := population{g: g, self: self, program: program, parents: parents, guests: map[int]bool{}}
	p.first = self == firstProcess || os.Getppid() == firstProcess
	for pid := range began {
		if spared[pid] || p.spares(pid) {
			delete(began, pid)
		}
	}
	return began
}

// processes yields the processes that are visible to this one.
func processes(yield func(int) bool) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		countUnseen(err)
		return
	}
	for _, entry := range all {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && !yield(pid) {
			return
		}
	}
}

// population is what others needs to know of all processes.
type population struct {
	g       *guest
	self    int
	first   bool // the guest is the container's main process, so that orphans are children of it or of its init process
	program int  // the worker of the service's own program; 0 if the guest does not run it
	parents map[int]int
	guests  map[int]bool // the result of isGuest, for processes that were looked at
}

// spares reports whether killAll spares a process that is not one of this guest's workers.
func (p *population) spares(pid int) bool {
	if pid == p.self || pid == firstProcess {
		return true
	}
	top, above := pid, pid // the topmost ancestor, and the one below it
	for range len(p.parents) {
		if top == p.program {
			return true
		}
		parent := p.parents[top]
		if _, is := p.parents[parent]; !is {
			break
		}
		top, above = parent, top
	}
	switch {
	case top == p.self: // it is a descendant, also where all that is known are descendants
		return false
	case top == firstProcess: // of the service's own program, or of a guest that is asked too
		return !p.first
	case p.parents[top] != 0 && p.parents[top] != p.self: // its parent has just ended; the next search finds the new one
		unseen.Add(1)
		return true
	case !p.isGuest(top): // from outside, by an exec of the Engine
		return false
	case pid == top: // the guest of another user, or a relay
		return true
	case above == pid && hasMode(p.g.self, pid, "worker"):
		return true
	}
	return !p.first // that guest is asked too
}

// isGuest reports whether a process, which was started from outside of the container, is another guest.
func (p *population) isGuest(pid int) bool {
	is, known := p.guests[pid]
	if !known {
		is = p.parents[pid] == 0 && hasMode(p.g.self, pid, "serve", "join", "relay")
		p.guests[pid] = is
	}
	return is
}

// hasMode reports whether a process is the guest's program in one of some modes, by its arguments.
func hasMode(self string, pid int, modes ...string) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	for _, mode := range modes {
		if strings.HasPrefix(string(text), self+"\x00"+mode+"\x00") {
			return true
		}
	}
	return false
}
