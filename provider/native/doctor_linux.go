//go:build amd64 || arm64

package native

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// Diagnose checks what this machine can do for sandboxes of this user, without starting one. It reports each check when it
// is done. It returns false if sandboxes cannot work.
func Diagnose(report func(provider.Check)) bool {
	ok := true
	for _, check := range []func() provider.Check{kernelCheck, filterCheck, usernsCheck, procCheck, idsCheck, cgroupsCheck, overlayCheck, seccompCheck, networkCheck} {
		c := check()
		ok = ok && c.Status != provider.StatusFail
		report(c)
	}
	return ok
}

func kernelCheck() provider.Check {
	c := provider.Check{Name: "kernel", Status: provider.StatusOK}
	if k, err := kernelVersion(); err == nil {
		c.Detail = fmt.Sprintf("Linux %d.%d", k.Major, k.Minor)
	}
	if err := checkKernel(); err != nil {
		return provider.FailedCheck(c.Name, err)
	}
	return c
}

// filterCheck finds out what seccomp filters of this process, such as a container's, forbid.
func filterCheck() provider.Check {
	c := provider.Check{Name: "system calls", Status: provider.StatusOK, Detail: "not filtered"}
	if err := checkFilter(); err != nil {
		return provider.FailedCheck(c.Name, err)
	}
	if isFiltered() {
		c.Detail = "filtered, but sandboxes can be started"
	}
	return c
}

func procCheck() provider.Check {
	c := provider.Check{Name: "/proc", Status: provider.StatusOK, Detail: "nothing is hidden"}
	switch err := checkProc(); {
	case err != nil && rootless():
		return provider.FailedCheck(c.Name, err)
	case err != nil:
		c = provider.FailedCheck(c.Name, err)
		c.Status, c.Hint = provider.StatusNote, "only --user-namespace needs it: "+c.Hint
	}
	return c
}

func usernsCheck() provider.Check {
	c := provider.Check{Name: "user namespaces", Status: provider.StatusOK}
	err := checkUserns()
	switch {
	case err != nil && rootless():
		return provider.FailedCheck(c.Name, err)
	case err != nil:
		c.Status, c.Detail, c.Hint = provider.StatusWarn, err.Error(), "without --user-namespace, root in a sandbox is root on the host, held by capabilities and seccomp"
	case rootless():
		c.Detail = "root in a sandbox is this user"
	default:
		c.Detail = "available (--user-namespace)"
	}
	return c
}

func idsCheck() provider.Check {
	c := provider.Check{Name: "users", Status: provider.StatusOK, Detail: "all users of images"}
	if !rootless() {
		return c
	}
	ids, err := subordinateIDs()
	if err != nil {
		c.Status, c.Detail = provider.StatusWarn, "root is the only user of sandboxes, and all files belong to it: "+err.Error()
		c.Hint = "install the package uidmap, and add 65536 subordinate ids: `usermod --add-subuids FIRST-LAST --add-subgids FIRST-LAST USER`"
		return c
	}
	if isRoot() {
		c.Detail += ", as those of this user namespace"
		return c
	}
	c.Detail = fmt.Sprintf("0 to 65535: root is this user, the others are the host's users from %d on and groups from %d on", ids.firstUID, ids.firstGID)
	return c
}

func cgroupsCheck() provider.Check {
	c := provider.Check{Name: "control groups", Status: provider.StatusOK, Detail: "version 1"}
	v2 := cgroups.IsCgroup2UnifiedMode()
	if v2 {
		c.Detail = "version 2"
	}
	if !delegates() {
		if v2 {
			c.Detail += ": " + strings.Join(available(cgroupRoot), ", ")
		}
		if !limitsSockets() {
			c.Status, c.Hint = provider.StatusWarn, "code in a sandbox can take more memory than its limit by UDP and TCP: start the machine with version 2"
			c.Detail += ": what waits in sockets is not part of a sandbox's memory"
		}
		return c
	}
	writable := slices.Sorted(maps.Keys(delegatedGroups()))
	if len(writable) > 0 {
		c.Detail += ", of this user: " + strings.Join(writable, ", ")
	}
	if slices.Contains(writable, "memory") && slices.Contains(writable, "cpu") {
		return c
	}
	c.Status = provider.StatusWarn
	switch err := unwritable(); {
	case len(writable) > 0:
	case rootless():
		c.Detail += ", none of this user: memory is measured, and processors are not limited"
	default:
		c.Detail = err.Error() + ": memory is measured, and neither processors nor processes are limited"
		c.Hint = "mount the control groups, writable; --user-namespace limits the processes of each user"
		return c
	}
	c.Hint = groupsHint() + ", or hand control groups of version 1 over by chown"
	if v2 {
		c.Hint = groupsHint() + ", or run in a control group of this user: `systemd-run --user --scope --property Delegate=yes COMMAND`"
	}
	return c
}

func overlayCheck() provider.Check {
	c := provider.Check{Name: "overlayfs", Status: provider.StatusOK, Detail: "available"}
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil || !strings.Contains(string(text), "\toverlay\n") {
		c.Status, c.Detail, c.Hint = provider.StatusWarn, "not loaded", "load it: `modprobe overlay`; the kernel may do so by itself"
	}
	return c
}

func seccompCheck() provider.Check {
	c := provider.Check{Name: "seccomp", Status: provider.StatusOK, Detail: "available"}
	if _, err := os.Stat("/proc/sys/kernel/seccomp/actions_avail"); err != nil {
		return provider.FailedCheck(c.Name, &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the kernel cannot filter system calls: %w", err)})
	}
	return c
}

// networkCheck looks for the program that connects sandboxes.
func networkCheck() provider.Check {
	path, err := NetworkHelper()
	if typed, ok := errors.AsType[*fumehood.Error](err); ok {
		return provider.Check{Name: "network", Status: provider.StatusNote, Detail: "sandboxes have no network: " + typed.Err.Error(), Hint: typed.Hint}
	}
	return provider.Check{Name: "network", Status: provider.StatusOK, Detail: "--network bridge uses " + path}
}
