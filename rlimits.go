package fumehood

import (
	"fmt"
	"time"
)

// Rlimits are the kernel's limits for the processes of one command (setrlimit(2)), soft and hard, so that
// none of them can raise one. They hold for each process by itself, not for the command as a whole:
// that is what Limits of a Spec are for. A limit that the sandbox itself has is never raised. In each field
// 0 means none of ours.
//
// A limit strikes as the kernel does it, and the Result tells no more than how the program ended. The
// engine transport, Cmd.ViaEngine and providers without such limits refuse a command that has any, with
// ErrUnsupported.
type Rlimits struct {
	// CPU is the processor time of a process, in whole seconds. When it is used up the process gets
	// SIGXCPU (24), and SIGKILL a second later.
	CPU time.Duration
	// FileSize is how large a file may become by a write, in bytes. A write beyond that gets SIGXFSZ (25),
	// or fails with EFBIG where that is ignored.
	FileSize int64
	// OpenFiles is how many descriptors a process may have open. One more fails with EMFILE.
	OpenFiles int64
	// Processes is how many processes and threads there may be for another one to be started, which else
	// fails with EAGAIN. The kernel counts all that the command's user has on the machine, in other
	// sandboxes too, and the guest's threads: about 15, and 8 more for each command at once. It holds
	// root to no such limit: for a command that runs as root it is an ErrUnsupported; see Limits.PIDs.
	Processes int64
}

// check says what is wrong with the limits.
func (l Rlimits) check() error {
	if l.CPU < 0 || l.FileSize < 0 || l.OpenFiles < 0 || l.Processes < 0 {
		return fmt.Errorf("an rlimit is negative")
	}
	if l.CPU%time.Second != 0 {
		return fmt.Errorf("the CPU limit %v is not of whole seconds", l.CPU)
	}
	return nil
}
