package guest

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// crowd is with how many processes in the container all stand still while some are killed: who kills a fork bomb of a
	// thousand processes gets a thousandth of the processors, and needed 5 to 36 s.
	crowd = 100
	// standAfter is how long a tree is killed without that, where nothing counts processes.
	standAfter = 100 * time.Millisecond
)

// standstill stops all processes of the container that this one may signal, but for itself and the container's first one,
// at one instant, while some of them are killed. The others go on afterwards. The zero value is ready.
type standstill struct {
	tried bool
	lock  int // a descriptor; two at a time could stop each other for good
	begun bool
}

// begin lets go on the process that is to kill; 0 where that is this one.
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
	if unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) != nil { // another is at it, or somebody hinders us: then it takes longer
		_ = unix.Close(lock)
		return
	}
	s.begun, s.lock = true, lock
	_ = unix.Kill(-1, unix.SIGSTOP)
	if killer > 0 {
		_ = unix.Kill(killer, unix.SIGCONT)
	}
}

// end has all go on, for good: none begins afterwards.
func (s *standstill) end() {
	s.tried = true
	if s.begun {
		s.begun = false
		_ = unix.Kill(-1, unix.SIGCONT)
		_ = unix.Close(s.lock)
	}
}

// initialPIDs is the inode of the machine's own namespace of process ids (PROC_PID_INIT_INO of Linux).
const initialPIDs = "pid:[4026531836]"

// ownProcesses reports whether the processes that this one sees are those of its container alone. They are not with the
// host's namespace of process ids, or another service's: its first process is in another control group.
func ownProcesses() bool {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns == initialPIDs {
		return false
	}
	first, err := os.ReadFile("/proc/1/cgroup")
	own, ownErr := os.ReadFile("/proc/self/cgroup")
	return err == nil && ownErr == nil && bytes.Equal(first, own)
}
