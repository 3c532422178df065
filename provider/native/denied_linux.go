//go:build amd64 || arm64

package native

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// What this machine or the container of this process denies. docs/cli.md has the table of settings that help.

// refusal returns an ErrUnsupported about this machine.
func refusal(hint, format string, values ...any) error {
	return &fumehood.Error{Op: "make native provider", Class: fumehood.ErrUnsupported, Err: fmt.Errorf(format, values...), Hint: hint}
}

// checkUserns returns an ErrUnsupported if this process cannot make user namespaces, without trying it.
func checkUserns() error {
	for file, off := range map[string]string{
		"/proc/sys/user/max_user_namespaces": "0", "/proc/sys/kernel/unprivileged_userns_clone": "0",
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
	} {
		if !rootless() && !strings.HasPrefix(file, "/proc/sys/user/") {
			continue
		}
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == off {
			return refusal("change it, "+rootHint()+", or use the docker provider", "user namespaces are disabled: %s is %s", file, off)
		}
	}
	if has, err := setup.PermittedSet(); err == nil && isRoot() && has&(1<<unix.CAP_SETFCAP) == 0 {
		return refusal("give it that capability, or run as another user", "root lacks the capability SETFCAP, without which it cannot be root of a user namespace")
	}
	return nil
}

// checkFilter returns an ErrUnsupported if a seccomp filter, such as that of a container, forbids a system call that every
// start makes. The calls here do nothing where they are allowed: the first cannot be made by several threads, and the
// second has no paths.
func checkFilter() error {
	denied := ""
	if err := unix.Unshare(unix.CLONE_NEWUSER); errors.Is(err, unix.EPERM) {
		denied = "unshare"
	} else if err := unix.PivotRoot("", ""); errors.Is(err, unix.EPERM) && !rootless() { // a user may call it only in a namespace of its own
		denied = "pivot_root"
	}
	if denied == "" {
		return nil
	}
	return refusal(seccompHint, "a seccomp filter forbids the system call %s, as in many containers", denied)
}

const (
	seccompHint = "for a container without that filter use Docker's --security-opt seccomp=unconfined, or Kubernetes' seccompProfile: {type: Unconfined}"
	procHint    = "for all of /proc use Docker's --security-opt systempaths=unconfined, or Kubernetes' procMount: Unmasked with hostUsers: false, or use gVisor (--runtime runsc)"
)

// checkProc returns an ErrUnsupported if a part of /proc is hidden: the kernel then allows no other /proc in a user
// namespace, since that would show it.
func checkProc() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return refusal("mount it", "no /proc: %w", err)
	}
	if hidden := hiddenProc(string(mounts)); hidden != "" {
		hint := procHint
		if isRoot() {
			hint += ", or " + rootHint()
		}
		return refusal(hint, "%s is hidden, so that the kernel allows no other /proc in a user namespace", hidden)
	}
	return nil
}

// hiddenProc returns a path that is mounted over a part of /proc, by a text of /proc/self/mountinfo. A directory that the kernel
// keeps empty for a mount hides nothing.
func hiddenProc(mountinfo string) string {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(fields[4], "/proc/") && fields[4] != "/proc/sys/fs/binfmt_misc" {
			return fields[4]
		}
	}
	return ""
}

// checkNamespaces returns an ErrUnsupported with everything that keeps this process from starting sandboxes in user namespaces.
var checkNamespaces = sync.OnceValue(func() error {
	var causes, hints []string
	for _, check := range []func() error{checkUserns, checkFilter, checkProc} {
		if typed, ok := errors.AsType[*fumehood.Error](check()); ok {
			causes, hints = append(causes, typed.Err.Error()), append(hints, typed.Hint)
		}
	}
	if causes == nil {
		return nil
	}
	return refusal(strings.Join(hints, "; and "), "%s", strings.Join(causes, "; "))
})

// isFiltered reports whether a seccomp filter restricts this process.
func isFiltered() bool {
	status, err := os.ReadFile("/proc/self/status")
	return err == nil && strings.Contains(string(status), "\nSeccomp:\t2\n")
}

// deniedHint is what may help where the kernel has denied a start something. It is empty if nothing is known to restrict
// this process.
func deniedHint() string {
	label, _ := os.ReadFile("/proc/self/attr/apparmor/current") // without AppArmor there is none
	if profile, enforced := strings.CutSuffix(strings.TrimSpace(string(label)), " (enforce)"); enforced {
		return "AppArmor's profile " + profile + " may deny it: for a container without use Docker's --security-opt apparmor=unconfined, or Kubernetes' appArmorProfile: {type: Unconfined}"
	}
	if isFiltered() {
		return "a seccomp filter may deny it: " + seccompHint
	}
	return ""
}
