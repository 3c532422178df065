// Command generate writes Fumehood's seccomp profile to the file that is its argument: Docker's default profile, in the
// version that go.mod requires, without the system calls of removed. `go generate ./internal/seccomp` runs it.
package main

import (
	"encoding/json"
	"fmt"
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

// profile is the profile that is written.
func profile() (*seccomp.Seccomp, error) {
	p := seccomp.DefaultProfile()
	if p.DefaultAction != specs.ActErrno {
		return nil, fmt.Errorf("the default action is %s: what is not listed is not refused", p.DefaultAction)
	}
	var rules []*seccomp.Syscall
	for _, rule := range p.Syscalls {
		if rule.Action == specs.ActAllow {
			rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool { return slices.Contains(removed, name) })
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
