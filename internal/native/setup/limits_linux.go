package setup

import (
	"os"

	"golang.org/x/sys/unix"
)

// resetLimits sets the limits of this process's resources to those of Docker's containers, so that they do not depend on
// the shell, service or user that started the sandbox. Without CAP_SYS_RESOURCE no limit exceeds the maximum of that
// one.
func resetLimits() error {
	const infinity = unix.RLIM_INFINITY
	for resource, limit := range map[int]unix.Rlimit{
		unix.RLIMIT_AS:       {Cur: infinity, Max: infinity},
		unix.RLIMIT_CORE:     {Cur: 0, Max: infinity},
		unix.RLIMIT_CPU:      {Cur: infinity, Max: infinity},
		unix.RLIMIT_DATA:     {Cur: infinity, Max: infinity},
		unix.RLIMIT_FSIZE:    {Cur: infinity, Max: infinity},
		unix.RLIMIT_LOCKS:    {Cur: infinity, Max: infinity},
		unix.RLIMIT_MEMLOCK:  {Cur: 8 << 20, Max: 8 << 20},
		unix.RLIMIT_MSGQUEUE: {Cur: 819200, Max: 819200},
		unix.RLIMIT_NICE:     {},
		unix.RLIMIT_NOFILE:   {Cur: 1 << 20, Max: 1 << 20},
		unix.RLIMIT_NPROC:    {Cur: infinity, Max: infinity},
		unix.RLIMIT_RSS:      {Cur: infinity, Max: infinity},
		unix.RLIMIT_RTPRIO:   {},
		unix.RLIMIT_RTTIME:   {Cur: infinity, Max: infinity},
		unix.RLIMIT_STACK:    {Cur: 8 << 20, Max: infinity},
	} {
		if unix.Setrlimit(resource, &limit) == nil {
			continue
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return os.NewSyscallError("getrlimit", err)
		}
		limit.Cur, limit.Max = min(limit.Cur, now.Max), min(limit.Max, now.Max)
		if limit == now {
			continue // gVisor lets no process set some
		}
		if err := unix.Setrlimit(resource, &limit); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	return nil
}
