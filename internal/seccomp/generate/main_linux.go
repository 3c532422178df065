// Command generate writes Fumehood's seccomp profile to the file named by its argument. The profile is Docker's
// default profile, in the version that go.mod requires, without the system calls of removed, and with those of
// restricted only for some arguments. `go generate ./internal/seccomp` runs it.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// removed are the system calls that no rule allows, whatever capabilities a container has.
var removed = []string{
	// These have been used to escape from containers, and are not needed in one.
	"io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "bpf", "perf_event_open",
	// The kernel's keyrings have no namespaces.
	"add_key", "keyctl", "request_key",
	// It creates sockets of any family for 32-bit programs. Its arguments are in memory, where no filter can read
	// them.
	"socketcall",
}

// removedFamilies are the socket families that no rule allows. The ports of AF_VSOCK belong to the whole machine, and
// the hypervisor listens on them. AF_ALG makes the kernel compute for any process.
var removedFamilies = []uint64{unix.AF_VSOCK, unix.AF_ALG}

// restricted are system calls that are allowed only if one of their rules matches.
//
// Most are allowed only on the calling process or its group. If a process could change the priority of others, the guest
// could be denied the processor forever; if it could set their limits, it could kill the guest. A thread may be given any
// policy except SCHED_IDLE, as by pthread_setschedparam(3), which passes thread ids.
var restricted = map[string][][]specs.LinuxSeccompArg{
	"fcntl": noLeases, "fcntl64": noLeases,
	"setpriority": {
		{equal(0, unix.PRIO_PROCESS), equal(1, 0)},
		{equal(0, unix.PRIO_PGRP), equal(1, 0)},
	},
	"sched_setscheduler": {{equal(0, 0)}, {policy(unix.SCHED_NORMAL)}, {policy(unix.SCHED_FIFO)}, {policy(unix.SCHED_RR)}, {policy(unix.SCHED_BATCH)}},
	// The policy is in memory, where no filter can read it.
	"sched_setattr": {{equal(0, 0)}},
	"prlimit64":     {{equal(0, 0)}, {equal(2, 0)}}, // those of others may be read
}

// noLeases are the commands of fcntl(2) but F_SETLEASE and F_SETDELEG, which are 1024 and 1040. For 45 s, a lease blocks
// everybody else who opens or executes the file: the guest, the Engine, and on a mounted file the host.
var noLeases = [][]specs.LinuxSeccompArg{
	{command(0, math.MaxUint32&^1023)}, // below 1024
	{command(1025, math.MaxUint32&^14)}, {command(1026, math.MaxUint32&^13)}, {command(1028, math.MaxUint32&^11)}, {command(1032, math.MaxUint32&^7)},
}

// command matches commands of fcntl by the bits of a mask.
func command(value, mask uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: 1, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}

// unless returns the capability with which a system call of restricted is allowed with all arguments.
func unless(name string) string {
	switch name {
	case "fcntl", "fcntl64":
		return "CAP_LEASE"
	case "prlimit64":
		return "CAP_SYS_RESOURCE"
	}
	return "CAP_SYS_NICE"
}

func equal(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
}

// policy matches sched_setscheduler with policy p, with or without SCHED_RESET_ON_FORK.
func policy(p uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: 1, Value: math.MaxUint32 &^ unix.SCHED_RESET_ON_FORK, ValueTwo: p, Op: specs.OpMaskedEqual}
}

// profile returns Fumehood's profile.
func profile() (*seccomp.Seccomp, error) {
	p := seccomp.DefaultProfile()
	if p.DefaultAction != specs.ActErrno {
		return nil, fmt.Errorf("the default action is %s: calls that are not listed are allowed", p.DefaultAction)
	}
	var rules []*seccomp.Syscall
	for _, rule := range p.Syscalls {
		if rule.Action == specs.ActAllow {
			rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(removed, name) || restricted[name] != nil })
			if slices.Contains(rule.Names, "socket") {
				if err := checkFamilies(rule); err != nil {
					return nil, err
				}
			}
		}
		if len(rule.Names) > 0 {
			rules = append(rules, rule)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(restricted)) {
		for _, args := range restricted[name] {
			rules = append(rules, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}})
		}
		rules = append(rules, &seccomp.Syscall{
			LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow}, Includes: &seccomp.Filter{Caps: []string{unless(name)}},
		})
	}
	// libseccomp also turns a rule about socket into one that allows socketcall for all families. Only a rule with
	// another error than the default prevents that; libseccomp drops rules that equal the default action.
	nosys := uint(unix.ENOSYS)
	p.Syscalls = append(rules, &seccomp.Syscall{
		LinuxSyscall: specs.LinuxSyscall{Names: []string{"socketcall"}, Action: specs.ActErrno, ErrnoRet: &nosys},
		Comment:      "its arguments are in memory: it would make sockets of every family",
	})
	return p, nil
}

// checkFamilies returns an error if a rule allows, or may allow, one of removedFamilies.
func checkFamilies(rule *seccomp.Syscall) error {
	if len(rule.Args) != 1 || rule.Args[0].Index != 0 {
		return fmt.Errorf("a rule allows sockets by something else than the family: %+v", rule.Args)
	}
	arg := rule.Args[0]
	for _, family := range removedFamilies {
		switch {
		case arg.Op == specs.OpEqualTo && arg.Value != family, arg.Op == specs.OpLessThan && arg.Value <= family:
		default:
			return fmt.Errorf("a rule allows sockets of family %d: %+v", family, arg)
		}
	}
	return nil
}

func text() ([]byte, error) {
	p, err := profile()
	if err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(p, "", "\t")
	return append(out, '\n'), err
}

func main() {
	out, err := text()
	if err == nil {
		err = os.WriteFile(os.Args[1], out, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "write the profile:", err)
		os.Exit(1)
	}
}
