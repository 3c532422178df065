// Package guest is the program that runs inside a container: it starts commands there for the host, ends
// them to the last process, and tells how they ended. It is kept small, and is delivered to containers of
// any image, so it may need nothing that an image could lack.
//
// It runs in one of several ways. "serve" speaks the protocol of package wire on its standard input and
// output; as the container's main process it also reaps what is orphaned, and cannot be ended from
// inside. It starts each command by a worker, itself again: a process that owns one command with all its
// descendants (see worker). A command with limits of its own begins as the guest too, which sets them and
// becomes the program (see launch). A guest that was asked to reside outlives its host, keeps detached
// commands, and is reached by "relay", which connects standard input and output with its socket. Without
// arguments the guest only idles and reaps.
//
// "serve --capabilities=HEX" is for a guest that was started with all capabilities: it gives up those that are not in the
// set, which is in hexadecimal digits as /proc/PID/status has it, before it does anything else.
//
// "serve --no-cgroup" is for a host process that is in no container of its own: the control group's counts
// would be the whole machine's, and are not read; nor is anything stopped but what it has started.
package guest

import (
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// uncontained is the option of a guest and of its workers that are in no container of their own.
const uncontained = "--no-cgroup"

// contained says that this process is in a container of its own, as its host has said.
var contained atomic.Bool

// Main runs the guest and returns its exit code.
func Main(args []string, stdin, stdout, stderr *os.File) int {
	if len(args) < 2 {
		idle()
		return 0
	}
	switch args[1] {
	case "serve":
		if err := keepCapabilities(args[2:]); err != nil {
			_, _ = io.WriteString(stderr, "fumehood-guest: give up capabilities: "+err.Error()+"\n")
			return 1
		}
		contained.Store(!slices.Contains(args[2:], uncontained))
		return serve(args[0], stdin, stdout, stderr)
	case "relay":
		if len(args) == 3 {
			return relay(args[2], stdin, stdout, stderr)
		}
	case "worker":
		if len(args) >= 3 {
			contained.Store(!slices.Contains(args[3:], uncontained))
			return work(args[0], args[2])
		}
	case "launch":
		return launched()
	case "selftest":
		return selfTest(args[2:], stdout)
	}
	_, _ = io.WriteString(stderr, "fumehood-guest: unknown command "+strings.Join(args[1:], " ")+"\n")
	return 2
}
