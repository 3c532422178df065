package seccomp

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Flags of clone(2) and unshare(2).
const (
	newNamespaces = 0x7e020000 // of all kinds but time
	newTime       = 0x80
	// notOfBrowsers are mount, control group and UTS namespaces. Without a mount namespace of its own, a process cannot
	// mount anything.
	notOfBrowsers = 0x06020000
)

// browsers returns the profile for browsers that isolate their own processes. These also make user, PID, IPC and network
// namespaces, and change their root folder.
func browsers() (string, error) {
	var p seccomp.Seccomp
	if err := json.Unmarshal(profile, &p); err != nil {
		return "", err
	}
	changed := 0
	for _, rule := range p.Syscalls {
		if slices.Contains(rule.Names, "clone") && len(rule.Args) == 1 && rule.Args[0].Op == specs.OpMaskedEqual && rule.Args[0].Value == newNamespaces {
			rule.Args[0].Value = notOfBrowsers
			changed++
		}
	}
	if changed != 2 { // one for s390
		return "", fmt.Errorf("%d rules limit the namespaces of clone, not 2", changed)
	}
	none := specs.LinuxSeccompArg{Value: notOfBrowsers | newTime, Op: specs.OpMaskedEqual}
	p.Syscalls = append(p.Syscalls,
		&seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{"unshare"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{none}}},
		&seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{"chroot"}, Action: specs.ActAllow}})
	text, err := json.Marshal(p)
	return string(text), err
}
