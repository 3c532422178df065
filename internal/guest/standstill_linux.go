package guest

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// crowd is the number of processes and threads in the container above which all are stopped while some are killed.
	// The killer of a fork bomb of a thousand processes gets a thousandth of the processors, and needed 5 to 36 s.
	crowd = 100
	// standAfter is how long a tree is killed without a standstill when processes are not counted.
	standAfter = 100 * time.Millisecond
)

// standstill stops all processes of the container at one instant while some of them are killed, and continues the
// others afterwards. It spares this process, the container's first one, and those that this process may not signal.
// The zero value is ready to use.
type standstill struct {
	tried bool
	lock  int // a file descriptor; two standstills at once could stop each other for good
	begun bool
}

// begin stops the processes, except for killer, which is the process that is about to kill. 0 means this process.
func (s *standstill) begin(killer int) {
	if s.tried || !contained.Load() {
		return
	}
	s.tried = true
	if !ownProcesses() {
		return
	}
	lock, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	if unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) != nil {
		// Another standstill is in progress, or a process holds the lock to hinder us. The kill then takes longer.
		_ = unix.Close(lock)
		return
	}
	s.begun, s.lock = true, lock
	_ = unix.Kill(-1, unix.SIGSTOP)
	if killer > 0 {
		_ = unix.Kill(killer, unix.SIGCONT)
	}
}

// end continues all processes. A standstill cannot begin again afterwards.
func (s *standstill) end() {
	s.tried = true
	if s.begun {
		s.begun = false
		_ = unix.Kill(-1, unix.SIGCONT)
		_ = unix.Close(s.lock)
	}
}

// initialPIDs is the inode of the machine's initial pid namespace (PROC_PID_INIT_INO of Linux).
const initialPIDs = "pid:[4026531836]"

// ownProcesses reports whether this process sees only the processes of its container. That is not so in the pid
// namespace of the host, or of another service. The first process of such a namespace is in another control group.
func ownProcesses() bool {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns == initialPIDs {
		return false
	}
	first, err := os.ReadFile("/proc/1/cgroup")
	own, ownErr := os.ReadFile("/proc/self/cgroup")
	return err == nil && ownErr == nil && bytes.Equal(first, own)
}
