package provider

import (
	"fmt"
	"time"

	"github.com/fumehood/fumehood"
)

// judgeMemory applies the kernel's count of out-of-memory kills to a command that did not exit with 0. If the command was
// alone in its service, it ran out of memory, whichever of its processes was killed. Otherwise the reason says that the
// kernel killed, since another command may be the cause. A command that exited with 0 has handled it. timeout is 0 if it is not known.
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
