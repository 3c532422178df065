package provider

import (
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
)

// sigXCPU is Linux's number of the signal that the kernel sends at a CPU limit.
const sigXCPU = 24

// nameRlimit adds the CPU limit of each process to the reason of a signal that it has caused, as far as known: SIGXCPU,
// or SIGKILL after that much CPU time if the program ignores SIGXCPU.
func nameRlimit(r *fumehood.Result, limit time.Duration) {
	if r.Outcome != fumehood.Signaled || r.Reason != "" || limit == 0 {
		return
	}
	used := r.Usage.User + r.Usage.System
	switch {
	case r.Signal == sigXCPU:
		r.Reason = fmt.Sprintf("killed by SIGXCPU, with a CPU limit of %v for each process", limit)
	case r.Signal == sigKill && used >= limit:
		r.Reason = fmt.Sprintf("killed by SIGKILL after %v of CPU time, with a CPU limit of %v for each process", used.Round(10*time.Millisecond), limit)
	}
}
