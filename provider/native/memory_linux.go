//go:build amd64 || arm64

package native

import (
	"bytes"
	"fmt"
	"os"
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
// process of a PID namespace. close stops it.
func watchMemory(limit int64, kills *atomic.Int64, roots func() []int) *memoryLimiter {
	m := &memoryLimiter{limit: limit, kills: kills, roots: roots, stop: make(chan struct{})}
	m.ended.Go(func() {
		pause := sparse
		for {
			select {
			case <-m.stop:
				return
			case <-time.After(pause):
			}
			pause = sparse
			if m.check() > m.limit/2 {
				pause = dense
			}
		}
	})
	return m
}

func (m *memoryLimiter) close() {
	close(m.stop)
	m.ended.Wait()
}

// check measures once, and returns the bytes in use.
func (m *memoryLimiter) check() (sum int64) {
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
	largest, most := 0, int64(-1)
	for i, pid := range all {
		n := proportionalOf(pid)
		if sum += n; n > most && i >= len(roots) {
			largest, most = pid, n
		}
	}
	if sum > m.limit && largest > 0 {
		m.kills.Add(1) // before anybody sees its end
		if !m.kill(largest, roots[0]) {
			m.kills.Add(-1)
		}
	}
	return sum
}

// kill kills a process if it is in the PID namespace of another one.
func (m *memoryLimiter) kill(pid, first int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false // has ended
	}
	defer unix.Close(fd)
	// From here on, the descriptor stands for the process that is compared, whatever gets its number later.
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return false
	}
	of, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", first))
	return err == nil && own == of && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// descendants returns processes with all their descendants.
func descendants(roots []int) []int {
	all := append([]int{}, roots...)
	for i := 0; i < len(all); i++ {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", all[i]))
		if err != nil {
			continue // has ended
		}
		for _, t := range threads {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", all[i], t.Name()))
			if err != nil {
				continue
			}
			for field := range bytes.FieldsSeq(text) {
				if pid, err := strconv.Atoi(string(field)); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// residentOf returns the bytes of a process's own pages in memory, shared ones included.
func residentOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, resident, shared int64
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &resident, &shared)
	}
	if err != nil {
		return 0 // has ended
	}
	return (resident - shared) * int64(os.Getpagesize())
}

// proportionalOf returns the bytes of a process's own pages in memory. A page of n processes counts as an n-th for each.
func proportionalOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return residentOf(pid)
	}
	for line := range bytes.Lines(text) {
		var kb int64
		if _, err := fmt.Sscanf(string(line), "Pss_Anon: %d kB", &kb); err == nil {
			return kb << 10
		}
	}
	return 0
}
