package fumehood

import (
	"fmt"
	"time"
)

// Rlimits are the kernel's resource limits (setrlimit(2)) for the processes of one command. They are set as both
// soft and hard limits, so no process can raise them. They apply to each process separately; to limit the command
// as a whole, use the Limits of a Spec. A limit of the sandbox itself is never raised. In each field, 0 sets no
// limit.
//
// A limit takes effect as the kernel defines it, and the Result reports how the program ended. If the program itself was
// killed at the CPU limit, its Reason names the limit. The Engine
// transport, Cmd.ViaEngine and providers without such limits reject commands that have any, with ErrUnsupported.
type Rlimits struct {
	// CPU is the processor time of a process, in whole seconds. When it is used up, the process receives SIGXCPU
	// (24), and SIGKILL one second later.
	CPU time.Duration
	// FileSize is the maximum size in bytes that a write can give a file. A write beyond it causes SIGXFSZ (25), or
	// fails with EFBIG if that signal is ignored.
	FileSize int64
	// OpenFiles is the maximum number of open descriptors of a process. Opening one more fails with EMFILE.
	OpenFiles int64
	// Processes is the maximum number of processes and threads; starting one more fails with EAGAIN. The kernel
	// counts all processes of the command's user on the machine, including other sandboxes, and the guest's
	// threads: about 15, plus 8 for each concurrent command. The kernel does not enforce it for root, so with a
	// command that runs as root it is an ErrUnsupported; see Limits.PIDs.
	Processes int64
}

// check validates the limits.
func (l Rlimits) check() error {
	if l.CPU < 0 || l.FileSize < 0 || l.OpenFiles < 0 || l.Processes < 0 {
		return fmt.Errorf("an rlimit is negative")
	}
	if l.CPU%time.Second != 0 {
		return fmt.Errorf("the CPU limit %v is not a whole number of seconds", l.CPU)
	}
	return nil
}
