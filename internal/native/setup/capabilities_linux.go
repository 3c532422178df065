package setup

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LimitCapabilities drops the capabilities that are not in set from all threads of this process, and from everything
// that it starts. See capabilities(7).
func LimitCapabilities(set uint64) error {
	if err := dropBounding(set); err != nil {
		return err
	}
	permitted, err := PermittedSet()
	if err != nil {
		return err
	}
	return setCapabilities(permitted & set)
}

// dropBounding drops the capabilities that are not in set from the bounding sets.
func dropBounding(set uint64) error {
	bounding, err := BoundingSet()
	if err != nil {
		return err
	}
	for c := range 64 {
		if bounding&^set&(1<<c) == 0 {
			continue
		}
		if err := onAllThreads("prctl", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c)); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

// setThreadCapabilities sets the capabilities of the calling thread.
func setThreadCapabilities(permitted, inheritable uint64) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := capabilityData(permitted, inheritable)
	return os.NewSyscallError("capset", unix.Capset(&head, &data[0]))
}

// capabilityData returns sets of capabilities in the kernel's form. The effective ones are the permitted ones.
func capabilityData(permitted, inheritable uint64) (data [2]unix.CapUserData) {
	for i := range data {
		half, passed := uint32(permitted>>(32*i)), uint32(inheritable>>(32*i)) //nolint:gosec // halves of the sets
		data[i] = unix.CapUserData{Permitted: half, Effective: half, Inheritable: passed}
	}
	return data
}

// setCapabilities sets the permitted and effective capabilities of all threads. The inheritable set becomes empty, and so
// does the ambient set.
func setCapabilities(set uint64) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := capabilityData(set, 0)
	return onAllThreads("capset", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&data[0])))
}

// BoundingSet returns the capabilities that this process and its children can have at most, one bit for each.
func BoundingSet() (set uint64, _ error) {
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

// PermittedSet returns the capabilities that this process has, one bit for each.
func PermittedSet() (uint64, error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return 0, os.NewSyscallError("capget", err)
	}
	return uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32, nil
}
