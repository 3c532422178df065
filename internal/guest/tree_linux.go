package guest

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A worker is the subreaper of its command: whatever the command's processes do (new sessions, double
// forks), they stay its descendants. So the tree below the worker is the command, and nothing else is.

// unseen counts how often the kernel did not let this process look at another that may be there: a command of the same
// user can take the descriptors from who is to kill it, by prlimit(2). Then that nothing is found proves nothing.
var unseen atomic.Int64

// overlooked takes an error of a look at a process, which mostly has ended.
func overlooked(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		unseen.Add(1)
	}
}

// children yields the children of a process, those of all its threads, the newest first. The kernel does not make the
// list at one instant: a child may be missing from it.
func children(pid int) iter.Seq[int] {
	return func(yield func(int) bool) {
		dir := "/proc/" + strconv.Itoa(pid) + "/task"
		tasks, err := os.ReadDir(dir)
		if err != nil {
			overlooked(err)
			return
		}
		for _, t := range tasks {
			list, err := os.ReadFile(dir + "/" + t.Name() + "/children")
			if err != nil {
				overlooked(err)
				continue
			}
			for _, f := range slices.Backward(strings.Fields(string(list))) {
				if child, err := strconv.Atoi(f); err == nil && !yield(child) {
					return
				}
			}
		}
	}
}

// descendants yields all that descends from a process, parents before their children, each as soon as it is found: it
// may be gone a moment later, and another in its place.
func descendants(root int) iter.Seq[int] {
	return func(yield func(int) bool) {
		seen := map[int]bool{root: true}
		for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
			for child := range children(queue[0]) {
				if seen[child] {
					continue
				}
				seen[child] = true
				queue = append(queue, child)
				if !yield(child) {
					return
				}
			}
		}
	}
}

// parentOf returns the parent of a process and when the process started, in ticks since boot; 0 where it has ended.
func parentOf(pid int) (parent int, began uint64) {
	f := statFields(pid)
	if f == nil || hasEnded(f) {
		return 0, 0
	}
	return parentIn(f), startIn(f)
}

// parentIn and startIn are in the fields of a process. They are numbers, says the kernel.
func parentIn(f []string) int {
	parent, _ := strconv.Atoi(f[4-3])
	return parent
}

func startIn(f []string) uint64 {
	start, _ := strconv.ParseUint(f[22-3], 10, 64)
	return start
}

// hasEnded reports whether the fields are of a process that has ended and waits to be reaped. One whose
// first thread alone has ended is called a zombie too, and runs on.
func hasEnded(f []string) bool {
	threads, _ := strconv.Atoi(f[20-3]) // a number, says the kernel
	return (f[0] == "Z" || f[0] == "X") && threads <= 1
}

// statFields reads the fields of /proc/PID/stat from the state on, which proc(5) counts as field 3; nil
// where there is no such process.
func statFields(pid int) []string {
	fd, err := openStat(pid)
	if err != nil {
		overlooked(err)
		return nil
	}
	defer unix.Close(fd)
	return fieldsAt(fd)
}

// openStat opens /proc/PID/stat, without os.File: its opening, reading and closing are nine calls of the kernel, and not
// three.
func openStat(pid int) (fd int, err error) {
	return unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// fieldsAt reads them from an open file, which stays that of the same process.
func fieldsAt(fd int) []string {
	var text [1024]byte // some 50 numbers and a name of 15 bytes
	n, err := unix.Pread(fd, text[:], 0)
	if err != nil {
		return nil
	}
	return fieldsOf(string(text[:n]))
}

func fieldsOf(text string) []string {
	// The program's name, in parentheses, may hold anything: the fields are behind its last ")".
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) <= 31-3 { // the last field that is looked at
		return nil
	}
	return f
}

// stopped reports whether the fields are of a process that a signal or a tracer holds.
func stopped(f []string) bool { return f != nil && (f[0] == "T" || f[0] == "t") }

// pendingKill reports whether the fields are of a process that is about to die of SIGKILL.
func pendingKill(f []string) bool {
	pending, _ := strconv.ParseUint(f[31-3], 10, 64) // a number, says the kernel
	return pending&(1<<(unix.SIGKILL-1)) != 0
}

// stat tells the parent of a process, its state, and when it started in ticks since boot.
func stat(pid int) (parent int, state byte, start uint64) {
	f := statFields(pid)
	if f == nil {
		return 0, 0, 0
	}
	return parentIn(f), f[0][0], startIn(f)
}

// maxDepth bounds the walk up from a process: a deeper tree was made to hide in.
const maxDepth = 1 << 15

// tree is what descends from a process.
type tree struct {
	root  int
	known map[int]uint64 // descendants that were met, by when they started: so that no deep tree is walked up each time
}

func treeOf(root int) *tree { return &tree{root: root, known: map[int]uint64{}} }

// has reports whether a process is in the tree.
func (t *tree) has(pid int) bool {
	above, began := parentOf(pid)
	for range maxDepth {
		if above == t.root || t.met(above) {
			t.known[pid] = began
			return true
		}
		if above <= 1 {
			return false
		}
		above, _ = parentOf(above)
	}
	return false
}

// met reports whether a process is one that was met, and not another by now.
func (t *tree) met(pid int) bool {
	met, is := t.known[pid]
	if !is {
		return false
	}
	_, began := parentOf(pid)
	return began == met
}

// send sends a signal to a process of the tree. A pid may be another process's by now: it is pinned
// first, and what is pinned is looked at again.
func (t *tree) send(pid int, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // an old kernel, or a filter
		if t.has(pid) {
			_ = unix.Kill(pid, sig)
		}
		return
	}
	if err != nil {
		if !errors.Is(err, unix.EINVAL) { // it has ended, and its number is its session's or its group's still
			overlooked(err)
		}
		return
	}
	defer unix.Close(fd)
	if !t.has(pid) {
		return
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		_ = unix.Kill(pid, sig) // where it is not ours to signal, this fails too
	}
}

const (
	// stopPasses bounds how often a tree is looked through for processes that were not stopped yet.
	stopPasses = 30
	// killWithin bounds the end of a tree that was sent SIGKILL: what is there then cannot be killed.
	killWithin = 10 * time.Second
	// reapPause is the time between looks at a tree that is dying.
	reapPause = 200 * time.Microsecond
	// dieWithin is what the kernel gets, beyond that, to end what was sent SIGKILL last.
	dieWithin = time.Second
)

// kill ends the processes that targets yields, all of them descendants of root. It first stops what it
// finds, as it finds it, until a look finds nothing new, so that nothing can be spawned faster than it is found; then it
// kills what it stopped. gone takes the statuses of what has ended, and reports whether nothing is left.
// It returns how many processes could not be killed: while gone denies it, at least one.
func kill(root int, targets func() iter.Seq[int], gone func() bool) (survivors int) {
	t := treeOf(root)
	began := time.Now()
	var still standstill
	defer still.end()
	for pause := reapPause; !gone(); pause = min(2*pause, 20*time.Millisecond) {
		stopped := map[int]bool{}
		for range stopPasses {
			fresh := 0
			for pid := range targets() {
				if time.Since(began) > standAfter {
					still.begin(0)
				}
				if !stopped[pid] {
					stopped[pid] = true
					fresh++
					t.send(pid, unix.SIGSTOP)
				}
			}
			if fresh == 0 {
				break
			}
		}
		for pid := range stopped {
			t.send(pid, unix.SIGKILL)
		}
		if time.Since(began) > killWithin {
			if await(gone, time.Now().Add(dieWithin)) {
				return 0
			}
			return max(1, living(targets()))
		}
		nap(pause)
	}
	return 0
}

// living counts the processes that have not ended: at least one where some may be there that cannot be seen.
func living(pids iter.Seq[int]) (n int) {
	before := unseen.Load()
	for pid := range pids {
		if parent, _ := parentOf(pid); parent != 0 {
			n++
		}
	}
	if unseen.Load() != before {
		n = max(1, n)
	}
	return n
}

// terminate asks all that descends from root to end, and waits until it has or the grace is over.
func terminate(root int, grace time.Duration, reap func() bool) {
	if reap() {
		return
	}
	deadline := time.Now().Add(grace)
	t := treeOf(root)
	// All are found before the first ends, whose children are somewhere else then.
	for _, pid := range slices.Collect(descendants(root)) {
		if time.Now().After(deadline) {
			return
		}
		t.send(pid, unix.SIGTERM)
	}
	await(reap, deadline)
}

// await waits until gone says so, and returns false where it has not by the deadline.
func await(gone func() bool, deadline time.Time) bool {
	for pause := reapPause; !gone(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		nap(pause)
	}
	return true
}

// nap waits between two looks at something that the kernel gives no notice of.
func nap(d time.Duration) { <-time.After(d) }

// exists reports whether a path is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
