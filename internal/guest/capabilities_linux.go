package guest

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
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
			return confine(set)
		}
	}
	return nil
}

// confine drops the capabilities that are not in set from all threads. See capabilities(7).
func confine(set uint64) error {
	bounding, err := boundingSet()
	if err != nil {
		return err
	}
	for c := range 64 {
		if bounding&^set&(1<<c) == 0 {
			continue
		}
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); errno != 0 {
			return os.NewSyscallError("prctl", errno)
		}
	}
	permitted, err := permittedSet()
	if err != nil {
		return err
	}
	permitted &= set
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // the inheritable set stays empty, and so does the ambient set
	for i := range data {
		half := uint32(permitted >> (32 * i)) //nolint:gosec // one half of the set
		data[i].Permitted, data[i].Effective = half, half
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])), 0); errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

// lacksCapabilities reports whether this process runs as root without some capability of its bounding set. An Engine
// before version 24 starts root like that in a container of another user.
func lacksCapabilities() bool {
	bounding, berr := boundingSet()
	permitted, perr := permittedSet()
	return os.Geteuid() == 0 && berr == nil && perr == nil && bounding&^permitted != 0
}

// boundingSet returns the capabilities that this process and its children can have at most, one bit for each.
func boundingSet() (set uint64, _ error) {
	for c := range 64 {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // the kernel has no more capabilities
		}
		if err != nil {
			return 0, os.NewSyscallError("prctl", err)
		}
		if has == 1 {
			set |= 1 << c
		}
	}
	return set, nil
}

// permittedSet returns the capabilities that this process has, one bit for each.
func permittedSet() (uint64, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return 0, os.NewSyscallError("capget", err)
	}
	return uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32, nil
}
