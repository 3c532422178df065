package guest

import (
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// A guest that was started by an exec can be killed by the commands that it runs, and its workers too. The orphans
// become children of the container's first process, and the kernel does not record whose they were. A sweep kills
// every such orphan that started after the dead guest, if the dead guest's user may have started it. For root these
// are all such orphans, otherwise those of that user, since no process can gain privileges. Commands of a living
// guest are below a worker and are no orphans. Processes that the first process has started itself, such as a
// service's own program, are spared too. They are in the session of the first process, and a guest's command never
// is.
//
// Only the first process can distinguish its own workers from orphans of the same user. A guest that is not the first
// process leaves such orphans to it. So the host asks both.

// firstProcess is the process id of the container's first process.
const firstProcess = 1

// sweep kills the processes that a dead guest left.
func (g *guest) sweep(s *wire.Stream, req *wire.Sweep) {
	_, _, began := stat(os.Getpid())
	swept := wire.Swept{User: os.Getuid(), Began: began, PID: os.Getpid(), Lacks: lacksCapabilities(), PIDsLimits: g.cgroup.pidsLimits.read(), OOMKills: g.cgroup.oomKills.read()}
	swept.ProcessLimit, _ = g.processLimit()
	swept.Dir, _ = os.Getwd() // empty on an error
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
	g.endLost(req, user)
	var spared string
	if os.Getpid() != firstProcess && serves(g.self, firstProcess) {
		spared = users(firstProcess)
	}
	first := session(firstProcess)
	belongs := func(pid int) bool {
		ids := users(pid)
		return session(pid) != first && ids != spared && (user == 0 || slices.Contains(strings.Fields(ids), strconv.Itoa(user)))
	}
	orphans := func() iter.Seq[int] { return killable(g.orphans(firstProcess, req.Since, belongs)) }
	looks := 0
	if contained.Load() && ownProcesses() {
		defer func() { _ = unix.Kill(-1, unix.SIGCONT) }() // the killer may have died while all were stopped
	}
	return kill(firstProcess, orphans, func() bool { // only the first process can reap them, if it does at all
		if looks++; living(orphans()) > 0 {
			looks = 0
		}
		return looks >= emptyLooks
	})
}

// endLost kills a guest that its host has given up, if it runs on: it may not have noticed that its connection has ended.
// What it leaves become orphans.
func (g *guest) endLost(req *wire.Sweep, user int) {
	lost := func() bool {
		_, state, began := stat(req.PID)
		return state != 'Z' && began == req.Since && serves(g.self, req.PID) && slices.Contains(strings.Fields(users(req.PID)), strconv.Itoa(user))
	}
	if req.PID <= firstProcess || req.PID == os.Getpid() || !lost() {
		return
	}
	_ = unix.Kill(req.PID, unix.SIGKILL) // fails if it is about to end, or another user's
	for began := time.Now(); lost() && time.Since(began) < lostWithin; {
		nap(time.Second / 100)
	}
}

// lostWithin bounds the wait for the end of a guest that was killed.
const lostWithin = 5 * time.Second

// orphans yields children of parent and their descendants. It skips workers of this guest, children that started
// before since (in ticks since boot), and children for which belongs returns false. A nil belongs accepts all.
func (g *guest) orphans(parent int, since uint64, belongs func(pid int) bool) iter.Seq[int] {
	return func(yield func(int) bool) {
		for child := range children(parent) {
			g.mu.Lock()
			known := g.workers[child] != nil
			g.mu.Unlock()
			if _, _, began := stat(child); known || began < since || belongs != nil && !belongs(child) {
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

// users returns the real, effective, saved and file system user ids of a process, separated by spaces. It returns ""
// if there is no such process.
func users(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		countUnseen(err)
		return ""
	}
	return usersIn(string(text))
}

func usersIn(status string) string {
	// The line with the program's name comes first. A newline in the name cannot fake a line, since the kernel writes
	// it as \n.
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return strings.Join(strings.Fields(ids), " ")
		}
	}
	return ""
}

// killable yields those of the processes that this one may signal.
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

// session returns the session of a process; "" if there is no such process.
func session(pid int) string {
	if f := statFields(pid); f != nil {
		return f[6-3]
	}
	return ""
}

// serves reports whether a process is a guest that serves a host. It compares the path of the program too, since
// another program could have the argument serve.
func serves(self string, pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.HasPrefix(string(text), self+"\x00serve\x00")
}
