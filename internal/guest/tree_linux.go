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

	"github.com/fumehood/fumehood/internal/wire"
)

// A worker is the subreaper of its command. Whatever the command's processes do (new sessions, double forks), they
// remain descendants of the worker. So the tree below the worker is exactly the command.

// unseen counts failed attempts to look at a process that may exist. A command of the same user can lower this
// process's limit on file descriptors with prlimit(2). An empty result of a search then does not prove that no
// process is left.
var unseen atomic.Int64

// countUnseen counts an error of a look at a process in unseen, unless the error means that the process has ended.
func countUnseen(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		unseen.Add(1)
	}
}

// children yields the children of all threads of a process, the newest first. The kernel's list is not an atomic
// snapshot, so a child may be missing.
func children(pid int) iter.Seq[int] {
	return func(yield func(int) bool) {
		dir := "/proc/" + strconv.Itoa(pid) + "/task"
		tasks, err := os.ReadDir(dir)
		if err != nil {
			countUnseen(err)
			return
		}
		for _, t := range tasks {
			list, err := os.ReadFile(dir + "/" + t.Name() + "/children")
			if err != nil {
				countUnseen(err)
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

// descendants yields all descendants of a process, parents before their children, each as soon as it is found. Such a
// process may have ended a moment later, and its pid may be another process's.
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

// parentOf returns the parent of a process and its start time in ticks since boot. Both are 0 if it has ended.
func parentOf(pid int) (parent int, began uint64) {
	f := statFields(pid)
	if f == nil || hasEnded(f) {
		return 0, 0
	}
	return parentIn(f), startIn(f)
}

// parentIn and startIn return values from the fields of a process. The kernel guarantees that they are numbers.
func parentIn(f []string) int {
	parent, _ := strconv.Atoi(f[4-3])
	return parent
}

func startIn(f []string) uint64 {
	start, _ := strconv.ParseUint(f[22-3], 10, 64)
	return start
}

// threads returns the number of threads of a process; 0 if it has ended.
func threads(pid int) int64 {
	f := statFields(pid)
	if f == nil {
		return 0
	}
	n, _ := strconv.ParseInt(f[20-3], 10, 64) // the kernel writes a number
	return n
}

// hasEnded reports whether the fields belong to a process that has ended and waits to be reaped. A process whose
// first thread has ended has the state of a zombie too, but still runs if it has other threads.
func hasEnded(f []string) bool {
	threads, _ := strconv.Atoi(f[20-3]) // the kernel writes a number
	return (f[0] == "Z" || f[0] == "X") && threads <= 1
}

// statFields reads the fields of /proc/PID/stat, starting with the state, which proc(5) counts as field 3. It returns
// nil if there is no such process.
func statFields(pid int) []string {
	fd, err := openStat(pid)
	if err != nil {
		countUnseen(err)
		return nil
	}
	defer unix.Close(fd)
	return fieldsAt(fd)
}

// openStat opens /proc/PID/stat without os.File, which would take nine system calls to open, read and close it
// instead of three.
func openStat(pid int) (fd int, err error) {
	return unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// fieldsAt reads the fields from an open /proc/PID/stat, which stays with the same process even if the pid is reused.
func fieldsAt(fd int) []string {
	var text [1024]byte // about 50 numbers and a name of up to 15 bytes
	n, err := wire.RawPread(fd, text[:])
	if err != nil {
		return nil
	}
	return fieldsOf(string(text[:n]))
}

func fieldsOf(text string) []string {
	// The program's name, in parentheses, may contain any character. The fields start after the last ")".
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) <= 31-3 { // the last field in use
		return nil
	}
	return f
}

// stopped reports whether the fields belong to a process that was stopped by a signal or a tracer.
func stopped(f []string) bool { return f != nil && (f[0] == "T" || f[0] == "t") }

// pendingKill reports whether the fields belong to a process with a pending SIGKILL.
func pendingKill(f []string) bool {
	pending, _ := strconv.ParseUint(f[31-3], 10, 64) // the kernel writes a number
	return pending&(1<<(unix.SIGKILL-1)) != 0
}

// stat returns the parent of a process, its state, and its start time in ticks since boot.
func stat(pid int) (parent int, state byte, start uint64) {
	f := statFields(pid)
	if f == nil {
		return 0, 0, 0
	}
	return parentIn(f), f[0][0], startIn(f)
}

// maxDepth bounds the walk up from a process. Only a tree built to evade the kill is deeper.
const maxDepth = 1 << 15

// tree is the set of descendants of a process.
type tree struct {
	root  int
	known map[int]uint64 // start times of descendants already found, which shorten the walk up in a deep tree
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

// met reports whether a process was found before, and its pid was not reused since.
func (t *tree) met(pid int) bool {
	met, is := t.known[pid]
	if !is {
		return false
	}
	_, began := parentOf(pid)
	return began == met
}

// send sends a signal to a process of the tree. The pid may have been reused, so send opens a pidfd first and then
// checks that the process is in the tree.
func (t *tree) send(pid int, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // an old kernel, or a seccomp filter
		if t.has(pid) {
			_ = unix.Kill(pid, sig)
		}
		return
	}
	if err != nil {
		if !errors.Is(err, unix.EINVAL) { // it has ended, and its pid is still the id of a session or group
			countUnseen(err)
		}
		return
	}
	defer unix.Close(fd)
	if !t.has(pid) {
		return
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		_ = unix.Kill(pid, sig) // also fails if this process may not signal it
	}
}

const (
	// stopPasses bounds how often a tree is searched for processes that were not stopped yet.
	stopPasses = 30
	// killWithin bounds the time to kill a tree. Processes that are left after that cannot be killed.
	killWithin = 10 * time.Second
	// reapPause is the first pause between two checks of a tree that is being killed.
	reapPause = 200 * time.Microsecond
	// dieWithin is the additional time for the processes that were sent SIGKILL last.
	dieWithin = time.Second
)

// kill kills the processes that targets yields, all of them descendants of root. It stops each process as it finds
// it, until a search finds no new one, so that processes cannot fork faster than they are found. Then it kills the
// stopped processes. gone collects exit statuses and reports whether nothing is left. kill returns how many processes
// could not be killed. That is at least one if gone still returns false at the end.
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

// living counts the processes that have not ended. It returns at least one if some processes could not be examined.
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

// terminate sends SIGTERM to all descendants of root, and waits until they have ended or the grace is over.
func terminate(root int, grace time.Duration, reap func() bool) {
	if reap() {
		return
	}
	deadline := time.Now().Add(grace)
	t := treeOf(root)
	// All are found before the first one ends, since its children get another parent then.
	for _, pid := range slices.Collect(descendants(root)) {
		if time.Now().After(deadline) {
			return
		}
		t.send(pid, unix.SIGTERM)
	}
	await(reap, deadline)
}

// await waits until gone returns true. It returns false if that has not happened by the deadline.
func await(gone func() bool, deadline time.Time) bool {
	for pause := reapPause; !gone(); pause = min(2*pause, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		nap(pause)
	}
	return true
}

// nap waits between two checks of something for which the kernel sends no notification.
func nap(d time.Duration) { <-time.After(d) }

// exists reports whether a path exists. An error other than "not found" counts as existing.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
