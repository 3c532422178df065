package guest

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/native/setup"
)

// keepCapabilities drops the capabilities that are not in the set of the argument --capabilities=HEX. They are
// dropped for good, for this process and everything that it starts. Without the argument, nothing is dropped.
func keepCapabilities(args []string) error {
	for _, arg := range args {
		if digits, ok := strings.CutPrefix(arg, "--capabilities="); ok {
			set, err := strconv.ParseUint(digits, 16, 64)
			if err != nil {
				return err
			}
			return setup.LimitCapabilities(set)
		}
	}
	return nil
}

// lacksCapabilities reports whether this process runs as root without some capability of its bounding set. An Engine
// before version 24 starts root like that in a container of another user.
func lacksCapabilities() bool {
	bounding, berr := setup.BoundingSet()
	permitted, perr := setup.PermittedSet()
	return os.Geteuid() == 0 && berr == nil && perr == nil && bounding&^permitted != 0
}

// untraceable calls start without the capabilities by which root may read every file. What it starts cannot be traced
// until it has another program if its program's file may not be read, which is so for the guest's (see PR_SET_DUMPABLE).
// Otherwise root's commands could take a worker's files before it protects itself.
func untraceable(start func() (int, error)) (int, error) {
	const reading = 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	runtime.LockOSThread() // the capabilities are the thread's
	defer runtime.UnlockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var usual [2]unix.CapUserData
	if unix.Capget(&head, &usual[0]) != nil || usual[0].Effective&reading == 0 {
		return start()
	}
	less := usual
	less[0].Effective &^= reading
	if err := unix.Capset(&head, &less[0]); err != nil {
		return 0, os.NewSyscallError("capset", err)
	}
	pid, err := start()
	if rerr := unix.Capset(&head, &usual[0]); rerr != nil {
		return pid, errors.Join(err, os.NewSyscallError("capset", rerr))
	}
	return pid, err
}
