package guest

import (
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// A guest that an exec has started can be killed by what it runs, and its workers with it. The orphans
// become children of the container's first process, and nothing tells whose they were. Killed is every
// such orphan that began since the dead guest did, where the dead guest's user may have started it: any
// where that was root, else those of that user, for no new privileges can be had. What a living guest runs
// is below a worker, and is no orphan. Neither is what the first process has started itself, as a service's
// own program: that is in the first process's session, and no command of a guest ever is.
//
// The first process knows its own workers. Nobody else can tell them from an orphan of the same user: a
// guest that is not the first process leaves these to it. So both are asked.

// firstProcess is the process id of the container's first process.
const firstProcess = 1

// sweep kills what a guest left that has died.
func (g *guest) sweep(s *wire.Stream, req *wire.Sweep) {
	_, _, began := stat(os.Getpid())
	swept := wire.Swept{User: os.Getuid(), Began: began, Lacks: lacksCapabilities(), PIDsLimits: g.cgroup.pidsLimits.read()}
	if req.Since > 0 {
		swept.Survivors = g.sweepOrphans(req)
	}
	answer(s, swept)
}

func (g *guest) sweepOrphans(req *wire.Sweep) (survivors int) {
	user := os.Getuid()
	if req.User != nil {
		user = *req.User
	}
	var spared string
	if os.Getpid() != firstProcess && serves(g.self, firstProcess) {
		spared = users(firstProcess)
	}
	first := session(firstProcess)
	theirs := func(pid int) bool {
		ids := users(pid)
		return session(pid) != first && ids != spared && (user == 0 || slices.Contains(strings.Fields(ids), strconv.Itoa(user)))
	}
	orphans := func() iter.Seq[int] { return killable(g.orphans(firstProcess, req.Since, theirs)) }
	looks := 0
	if contained.Load() && ownProcesses() {
		defer func() { _ = unix.Kill(-1, unix.SIGCONT) }() // it may have died while all stood still
	}
	return kill(firstProcess, orphans, func() bool { // the first process takes their statuses, or never does
		if looks++; living(orphans()) > 0 {
			looks = 0
		}
		return looks >= emptyLooks
	})
}

// orphans yields the children of parent that are not workers of this guest, began at since or later, in
// ticks since boot, and are theirs (nil for any); and what descends from them.
func (g *guest) orphans(parent int, since uint64, theirs func(pid int) bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for child := range children(parent) {
			g.mu.Lock()
			known := g.workers[child] != nil
			g.mu.Unlock()
			if _, _, began := stat(child); known || began < since || theirs != nil && !theirs(child) {
				continue
			}
			if !yield(child) {
				return
			}
			for pid := range descendants(child) {
				if !yield(pid) {
					return
				}
			}
		}
	}
}

// users returns the user ids of a process: real, effective, saved and of file accesses, with spaces
// between them; "" where there is no such process.
func users(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		overlooked(err)
		return ""
	}
	return usersIn(string(text))
}

func usersIn(status string) string {
	// The line with the program's name comes first; it cannot hold a newline of its own, for the kernel
	// writes that as \n.
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return strings.Join(strings.Fields(ids), " ")
		}
	}
	return ""
}

// killable yields those that this process may signal.
func killable(pids iter.Seq[int]) iter.Seq[int] {
	return func(yield func(int) bool) {
		for pid := range pids {
			if mayKill(pid) && !yield(pid) {
				return
			}
		}
	}
}

// mayKill reports whether this process may signal another. See kill(2).
func mayKill(pid int) bool {
	own := os.Geteuid()
	ids := strings.Fields(users(pid))
	return own == 0 || len(ids) == 4 && slices.Contains([]string{ids[0], ids[2]}, strconv.Itoa(own))
}

// session returns the session of a process; "" where there is no such process.
func session(pid int) string {
	if f := statFields(pid); f != nil {
		return f[6-3]
	}
	return ""
}

// serves reports whether a process is a guest that serves a host: the program at self, and not another whose arguments
// say serve too.
func serves(self string, pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.HasPrefix(string(text), self+"\x00serve\x00")
}
