// Command generate writes Fumehood's seccomp profile to the file that is its argument: Docker's default profile, in the
// version that go.mod requires, without the system calls of removed, and with ofOwn restricted. `go generate ./internal/seccomp` runs it.
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

// removed are the system calls that no rule allows, whatever a container's capabilities are.
var removed = []string{
	// What has been a way out of containers, and is not needed in one.
	"io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "bpf", "perf_event_open",
	// The kernel's keyrings have no namespaces.
	"add_key", "keyctl", "request_key",
	// It makes sockets of every family for programs of 32 bits, by arguments in memory, where no filter reads.
	"socketcall",
}

// removedFamilies are the families of sockets that no rule allows: the ports of AF_VSOCK are the machine's, and the
// hypervisor listens there; AF_ALG makes the kernel compute for everybody.
var removedFamilies = []uint64{unix.AF_VSOCK, unix.AF_ALG}

// ofOwn are the system calls by which a process may change its own priority, and that of its group, but not that of others: the guest
// would wait for a processor for ever. Nor may it set others' limits, by which the guest would die. By any of its rules a call is
// allowed. A thread may be given another policy than that of the idle, as by pthread_setschedparam(3), which names threads by
// their numbers.
var ofOwn = map[string][][]specs.LinuxSeccompArg{
	"setpriority": {
		{equal(0, unix.PRIO_PROCESS), equal(1, 0)},
		{equal(0, unix.PRIO_PGRP), equal(1, 0)},
	},
	"sched_setscheduler": {{equal(0, 0)}, {policy(unix.SCHED_NORMAL)}, {policy(unix.SCHED_FIFO)}, {policy(unix.SCHED_RR)}, {policy(unix.SCHED_BATCH)}},
	"sched_setattr":      {{equal(0, 0)}},                // whose policy is in memory, where no filter reads
	"prlimit64":          {{equal(0, 0)}, {equal(2, 0)}}, // of others they are read
}

// unless returns the capability with which one of ofOwn is allowed for others too.
func unless(name string) string {
	if name == "prlimit64" {
		return "CAP_SYS_RESOURCE"
	}
	return "CAP_SYS_NICE"
}

func equal(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
}

// policy is the one that sched_setscheduler is to set, with or without SCHED_RESET_ON_FORK.
func policy(p uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: 1, Value: math.MaxUint32 &^ unix.SCHED_RESET_ON_FORK, ValueTwo: p, Op: specs.OpMaskedEqual}
}

// profile is the profile that is written.
func profile() (*seccomp.Seccomp, error) {
	p := seccomp.DefaultProfile()
	if p.DefaultAction != specs.ActErrno {
		return nil, fmt.Errorf("the default action is %s: what is not listed is not refused", p.DefaultAction)
	}
	var rules []*seccomp.Syscall
	for _, rule := range p.Syscalls {
		if rule.Action == specs.ActAllow {
			rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(removed, name) || ofOwn[name] != nil })
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
	for _, name := range slices.Sorted(maps.Keys(ofOwn)) {
		for _, args := range ofOwn[name] {
			rules = append(rules, &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow, Args: args}})
		}
		rules = append(rules, &seccomp.Syscall{
			LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActAllow}, Includes: &seccomp.Filter{Caps: []string{unless(name)}},
		})
	}
	// libseccomp turns a rule about socket into one that allows socketcall for all families. Only a rule of another
	// error than the default one keeps it from that: rules that do what is done anyway are left out.
	nosys := uint(unix.ENOSYS)
	p.Syscalls = append(rules, &seccomp.Syscall{
		LinuxSyscall: specs.LinuxSyscall{Names: []string{"socketcall"}, Action: specs.ActErrno, ErrnoRet: &nosys},
		Comment:      "its arguments are in memory: it would make sockets of every family",
	})
	return p, nil
}

// checkFamilies refuses a rule that allows one of removedFamilies, or may.
func checkFamilies(rule *seccomp.Syscall) error {
	if len(rule.Args) != 1 || rule.Args[0].Index != 0 {
		return fmt.Errorf("a rule allows sockets by other than their family: %+v", rule.Args)
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
