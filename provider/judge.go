package provider

import (
	"errors"
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
)

// ending is what is known of the end of a command that has started.
type ending struct {
	Exit
	err     error         // the backend's; the command is then lost
	why     error         // errTimeout or errKilled if this process has killed it for that; else nil
	killed  bool          // a caller has killed it, perhaps in another process
	sandbox string        // how the sandbox was ended, such as "closed"; empty if it was not
	timeout time.Duration // of the command; 0 if it is not known
	cpu     time.Duration // its Rlimits.CPU; 0 for none
}

// judge decides how a command ended. It sets the outcome with its exit code, signal and reason, CausedInside and Usage.
func judge(e ending) *fumehood.Result {
	r := &fumehood.Result{
		Outcome: e.Outcome, ExitCode: e.Code, Signal: e.Signal, Reason: e.Reason, Usage: e.Usage,
		CausedInside: e.CausedInside && !errors.Is(e.why, errTimeout),
	}
	switch {
	case e.Outcome == fumehood.CPUTimeExceeded: // the limit was exceeded before something else killed it
	case errors.Is(e.why, errTimeout):
		r.Outcome, r.ExitCode, r.Signal, r.Reason = fumehood.TimedOut, -1, 0, ""
	case errors.Is(e.why, errKilled) && e.Outcome == "":
		r.Outcome, r.ExitCode, r.Reason = fumehood.Lost, -1, "this transport cannot kill the command"
	}
	switch {
	case r.Outcome == fumehood.Lost && e.err != nil:
		r.Reason = e.err.Error()
	case r.Outcome == fumehood.Lost && e.sandbox != "" && !r.CausedInside && e.why == nil:
		r.Reason = "the sandbox was " + e.sandbox + " while the command ran"
	case r.Outcome == fumehood.Signaled && e.killed && (e.Signal == sigKill || e.Signal == sigTerm):
		r.Reason = errKilled.Error()
	}
	if e.Judged {
		return r
	}
	nameRlimit(r, e.cpu)
	judgeMemory(r, e.Alone, e.timeout)
	return r
}

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

// judgeMemory applies the kernel's count of out-of-memory kills to a command that did not exit with 0. If the command was
// alone in its service, it ran out of memory, whichever of its processes was killed. Otherwise the reason says that the
// kernel killed, since another command may be the cause. A command that exited with 0 has handled it. timeout is 0 if it is
// not known.
func judgeMemory(r *fumehood.Result, alone bool, timeout time.Duration) {
	n := r.Usage.OOMKills
	if n == 0 || r.Outcome == fumehood.Exited && r.ExitCode == 0 {
		return
	}
	var how string
	switch r.Outcome {
	case fumehood.Exited:
		how = fmt.Sprintf("exited with code %d", r.ExitCode)
	case fumehood.Signaled:
		if how = "was " + r.Reason; r.Reason == "" {
			how = fmt.Sprintf("was ended by signal %d", r.Signal)
		}
	case fumehood.TimedOut:
		if how = "was killed at its timeout"; timeout > 0 {
			how += fmt.Sprintf(" of %v", timeout)
		}
	case fumehood.CPUTimeExceeded, fumehood.OutOfMemory, fumehood.Lost:
		return
	}
	kills := "the kernel killed a process of the service for memory"
	if n > 1 {
		kills = fmt.Sprintf("the kernel killed %d processes of the service for memory", n)
	}
	switch {
	case alone:
		r.Outcome, r.Signal, r.Reason = fumehood.OutOfMemory, 0, kills+", and the command "+how
	case r.Reason != "":
		r.Reason += "; " + kills + " meanwhile, while other programs ran"
	default:
		r.Reason = kills + " meanwhile, while other programs ran"
	}
}
