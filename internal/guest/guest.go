// Package guest is the program that runs inside a container. It starts commands there for the host, kills them with
// all their descendants, and reports how they ended. It is delivered to containers of any image, so it is small and
// needs nothing from the image.
//
// The program has several modes. "serve" serves the protocol of package wire on standard input and output. As the
// container's main process it also reaps orphans, and cannot be killed from inside the container. It starts each
// command through a worker, which is another process of the same program. A worker owns one command with all its
// descendants (see worker). A command with its own resource limits starts as the guest program too, which sets the
// limits and then execs the command (see launch). A resident guest outlives its host and keeps detached commands.
// "relay" connects standard input and output to the socket of a resident guest. Without arguments the guest only
// idles and reaps orphans.
//
// "serve --capabilities=HEX" is for a guest that was started with all capabilities. Before anything else, it drops
// the capabilities that are not in the set. HEX is in hexadecimal digits, as in /proc/PID/status.
//
// "serve --as=USER" is for a guest that was started as root: it becomes that user of the image before anything else.
// With "--await" it writes nothing before the host does: a host that attaches later would not receive it.
// "install" copies the program to a folder, for other containers of a Pod.
//
// "setup" first builds the sandbox around this process, in new namespaces, and then serves. "enter" starts another guest
// in the namespaces of a sandbox, in the mode "join", which gives up the host's rights and serves. "enter-user" does so
// for a sandbox in a user namespace. "share" starts another guest in the mode "setup", in the user and network namespaces
// of a sandbox. "runtime" lets an OCI runtime start a guest in the mode "join". See package setup.
//
// "serve --no-cgroup" is for a host process that does not run in a container of its own. The counters of its control
// group would be those of the whole machine, so they are not read. Such a guest stops only processes that it has
// started.
package guest

import (
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// uncontained is the option for a guest, and its workers, that do not run in a container of their own.
const uncontained = "--no-cgroup"

// contained is true when this process runs in a container of its own, according to its host.
var contained atomic.Bool

// Main runs the guest and returns its exit code.
func Main(args []string, stdin, stdout, stderr *os.File) int {
	if len(args) < 2 {
		idle()
		return 1
	}
	switch args[1] {
	case "serve":
		if err := keepCapabilities(args[2:]); err != nil {
			_, _ = io.WriteString(stderr, "fumehood-guest: give up capabilities: "+err.Error()+"\n")
			return 1
		}
		if code := become(args[2:], stderr); code != 0 {
			return code
		}
		contained.Store(!slices.Contains(args[2:], uncontained))
		if slices.Contains(args[2:], "--await") {
			awaitHost(stdin)
		}
		return serve(args[0], nil, stdin, stdout, stderr)
	case "setup", "join":
		return setUp(args[0], stdin, stdout, stderr)
	case "enter", "enter-user", "share":
		return enter(args[1], stderr)
	case "runtime":
		return supervise(stdin, stderr)
	case "own":
		return own(stdin, stderr)
	case "relay":
		if len(args) == 3 {
			return relay(args[2], stdin, stdout, stderr)
		}
	case "install":
		return install(args[2:], stderr)
	case "launch":
		return runLaunched()
	case "selftest":
		return selfTest(args[2:], stdout)
	}
	_, _ = io.WriteString(stderr, "fumehood-guest: unknown command "+strings.Join(args[1:], " ")+"\n")
	return 2
}
