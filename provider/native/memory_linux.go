//go:build amd64 || arm64

package native

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// memoryLimiter keeps the memory limit of a service without control groups: it measures the memory of all processes, and kills
// the largest one but the first while the sum is above the limit. Between two measurements processes may use more.
type memoryLimiter struct {
	limit int64 // bytes
	roots func() []int
	kind  string        // of the namespace that the processes are in: "pid", or "user" under a runtime
	own   uint64        // the inode of that namespace's file; 0 for none
	kills *atomic.Int64 // counts
	stop  chan struct{}
	ended sync.WaitGroup
}

// The time between two measurements, with less and with more than half of the limit in use.
const (
	sparse = 25 * time.Millisecond
	dense  = 5 * time.Millisecond
)

// watchMemory starts a memoryLimiter. The processes are those that roots returns, with their descendants; the first is the first
// process of a namespace of a kind, "pid" or "user". close stops it.
func watchMemory(limit int64, kills *atomic.Int64, kind string, roots func() []int) *memoryLimiter {
	m := &memoryLimiter{limit: limit, kills: kills, kind: kind, roots: roots, stop: make(chan struct{})}
	if all := roots(); len(all) > 0 {
		var st unix.Stat_t
		if unix.Stat(fmt.Sprintf("/proc/%d/ns/%s", all[0], m.kind), &st) == nil { // it has not ended
			m.own = st.Ino
		}
	}
	m.ended.Go(func() {
		pause := sparse
		for {
			select {
			case <-m.stop:
				return
			case <-time.After(pause):
			}
			pause = sparse
			if m.measure() > m.limit/2 {
				pause = dense
			}
		}
	})
	return m
}

// namespaceKind returns the kind of namespace that only the processes of the service are in.
func (s *service) namespaceKind() string {
	if s.oci != nil {
		return "user"
	}
	return "pid"
}

func (m *memoryLimiter) close() {
	close(m.stop)
	m.ended.Wait()
}

// measure measures once, and returns the bytes in use.
func (m *memoryLimiter) measure() (sum int64) {
	roots := m.roots()
	all := descendants(roots)
	for _, pid := range all {
		sum += residentOf(pid)
	}
	if sum <= m.limit {
		return sum
	}
	// Processes share pages after a fork. Only this counts them once, and it takes longer.
	sum = 0
	used := map[int]int64{}
	for i, pid := range all {
		n := proportionalOf(pid)
		sum += n
		if i >= len(roots) {
			used[pid] = n
		}
	}
	largest := slices.SortedFunc(maps.Keys(used), func(a, b int) int { return cmp.Compare(used[b], used[a]) })
	for _, pid := range largest {
		if sum <= m.limit {
			break
		}
		m.kills.Add(1) // before anybody sees its end
		if !killIn(m.kind, m.own, pid) {
			m.kills.Add(-1)
			continue
		}
		sum -= used[pid]
	}
	return sum
}

// killIn kills a process if it is in a namespace of a kind, "pid" or "user", or in one below it, and reports whether it did.
// namespace is the inode of its file.
func killIn(kind string, namespace uint64, pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false // has ended
	}
	defer unix.Close(fd)
	// From here on, the descriptor stands for the process that is compared, whatever gets its number later.
	return isBelow(fmt.Sprintf("/proc/%d/ns/%s", pid, kind), namespace) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// isBelow reports whether a file is that of a namespace, or of one below it.
func isBelow(file string, namespace uint64) bool {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for err == nil {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Ino == namespace {
			_ = unix.Close(fd)
			return true
		}
		var above int
		above, err = unix.IoctlRetInt(fd, unix.NS_GET_PARENT) // EPERM: it is not below this process's own
		_ = unix.Close(fd)
		fd = above
	}
	return false
}

// descendants returns processes with all their descendants.
func descendants(roots []int) []int {
	all := append([]int{}, roots...)
	for i := 0; i < len(all); i++ {
		for _, tid := range threadsOf(all[i]) {
			for field := range bytes.FieldsSeq(readProc(fmt.Sprintf("/proc/%d/task/%s/children", all[i], tid))) {
				if pid, err := strconv.Atoi(string(field)); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// threadsOf returns the names of a process's threads in its folder "task"; none if it has ended.
func threadsOf(pid int) (names []string) {
	task := fmt.Sprintf("/proc/%d/task", pid)
	var st unix.Stat_t
	if unix.Stat(task, &st) == nil && st.Nlink == 3 { // faster: itself, the one above, and a folder for each thread
		return []string{strconv.Itoa(pid)}
	}
	threads, err := os.ReadDir(task)
	if err != nil {
		return nil
	}
	for _, t := range threads {
		names = append(names, t.Name())
	}
	return names
}

// residentOf returns the bytes of a process's pages in memory that are not a file's on a disk, shared ones included.
func residentOf(pid int) int64 { return sumOf(pid, "status", "RssAnon", "RssShmem") }

// proportionalOf is residentOf, but a page of n processes counts as an n-th for each.
func proportionalOf(pid int) int64 { return sumOf(pid, "smaps_rollup", "Pss_Anon", "Pss_Shmem") }

// sumOf returns the sum, in bytes, of two lines in a file of a process; 0 if it has ended. If its first thread has exited,
// only the files of the others have these lines.
func sumOf(pid int, file, one, other string) int64 {
	sum, found := sumIn(readProc(fmt.Sprintf("/proc/%d/%s", pid, file)), one, other)
	if found {
		return sum
	}
	for _, tid := range threadsOf(pid) {
		if sum, found = sumIn(readProc(fmt.Sprintf("/proc/%d/task/%s/%s", pid, tid, file)), one, other); found {
			break
		}
	}
	return sum
}

// sumIn returns the sum, in bytes, of two lines of a text, and whether it has one of them.
func sumIn(text []byte, one, other string) (sum int64, found bool) {
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != one && string(name) != other {
			continue
		}
		found = true
		if kb, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" kB"))), 10, 64); err == nil {
			sum += kb << 10
		}
	}
	return sum, found
}

// readProc returns the text of a file of a process; nil if that has ended. It takes fewer system calls than os.ReadFile.
func readProc(file string) []byte {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	text := make([]byte, 0, 4096)
	for {
		text = slices.Grow(text, 2048)
		n, err := unix.Read(fd, text[len(text):cap(text)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil
		case n == 0:
			return text
		default:
			text = text[:len(text)+n]
		}
	}
}
