package guest

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A worker is the subreaper of its command: whatever the command's processes do (new sessions, double
// forks), they stay its descendants. So the tree below the worker is the command, and nothing else is.

// children lists the children of a process, those of all its threads. The kernel does not make the list
// at one instant: a child may be missing from it.
func children(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil // it has ended
	}
	var pids []int
	for _, t := range tasks {
		list, err := os.ReadFile(dir + "/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(list)) {
			if child, err := strconv.Atoi(f); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// descendants lists all that descends from a process, parents before their children.
func descendants(root int) []int {
	var all []int
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children(queue[0]) {
			if !seen[child] {
				seen[child] = true
				all = append(all, child)
				queue = append(queue, child)
			}
		}
	}
	return all
}

// parentOf returns the parent of a process, and 0 where it has ended.
func parentOf(pid int) int {
	f := statFields(pid)
	if f == nil || hasEnded(f) {
		return 0
	}
	parent, _ := strconv.Atoi(f[4-3]) // a number, says the kernel
	return parent
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
	parent, _ = strconv.Atoi(f[1])              // a number, says the kernel
	start, _ = strconv.ParseUint(f[19], 10, 64) // likewise
	return parent, f[0][0], start
}

// maxDepth bounds the walk up from a process: a deeper tree was made to hide in.
const maxDepth = 1 << 15

// below reports whether pid descends from root.
func below(pid, root int) bool {
	for range maxDepth {
		if pid = parentOf(pid); pid == root {
			return true
		}
		if pid <= 1 {
			return false
		}
	}
	return false
}

// send sends a signal to a descendant of root. A pid may be another process's by now: it is pinned
// first, and what is pinned is looked at again.
func send(pid, root int, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // an old kernel, or a filter
		if below(pid, root) {
			_ = unix.Kill(pid, sig)
		}
		return
	}
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if !below(pid, root) {
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
)

// kill ends the processes that targets lists, all of them descendants of root. It first stops what it
// finds, until a look finds nothing new, so that nothing can be spawned faster than it is found; then it
// kills what it stopped. gone takes the statuses of what has ended, and reports whether nothing is left.
// It returns how many processes could not be killed.
func kill(root int, targets func() []int, gone func() bool) (survivors int) {
	deadline := time.Now().Add(killWithin)
	for pause := reapPause; !gone(); pause = min(2*pause, 20*time.Millisecond) {
		stopped := map[int]bool{}
		for range stopPasses {
			fresh := 0
			for _, pid := range targets() {
				if !stopped[pid] {
					stopped[pid] = true
					fresh++
					send(pid, root, unix.SIGSTOP)
				}
			}
			if fresh == 0 {
				break
			}
		}
		for pid := range stopped {
			send(pid, root, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return living(targets())
		}
		nap(pause)
	}
	return 0
}

// living counts the processes that have not ended.
func living(pids []int) (n int) {
	for _, pid := range pids {
		if parentOf(pid) != 0 {
			n++
		}
	}
	return n
}

// terminate asks all that descends from root to end, and waits until it has or the grace is over.
func terminate(root int, grace time.Duration, reap func() bool) {
	if reap() {
		return
	}
	for _, pid := range descendants(root) {
		send(pid, root, unix.SIGTERM)
	}
	deadline := time.Now().Add(grace)
	for pause := reapPause; !reap() && time.Now().Before(deadline); pause = min(2*pause, 20*time.Millisecond) {
		nap(pause)
	}
}

// nap waits between two looks at something that the kernel gives no notice of.
func nap(d time.Duration) { <-time.After(d) }

// exists reports whether a path is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
