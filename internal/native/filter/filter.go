// Package filter compiles seccomp profiles to programs for seccomp(2), without libseccomp. A program decides each
// system call as Docker, runc and libseccomp would with the same profile.
package filter

import (
	_ "embed" // the programs of Fumehood's profile
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/fumehood/fumehood"
)

//go:generate go run ../../seccomp/generate/syscalls syscalls.txt
//go:generate go run ../../seccomp/generate/filters .

// The programs, with a line of hexadecimal digits for each instruction.
var (
	//go:embed amd64.hex
	amd64 string
	//go:embed arm64.hex
	arm64 string
)

// Default returns the program of Fumehood's profile for an architecture in Go's name, for containers without any of the
// capabilities that the profile names, on DefaultKernel or later. An architecture other than amd64 and arm64 is an
// ErrUnsupported.
func Default(arch string) ([]byte, error) {
	switch arch {
	case "amd64":
		return hex.DecodeString(strings.ReplaceAll(amd64, "\n", ""))
	case "arm64":
		return hex.DecodeString(strings.ReplaceAll(arm64, "\n", ""))
	}
	return nil, unsupportedArch(arch)
}

func unsupportedArch(arch string) error {
	return &fumehood.Error{Op: "compile seccomp profile", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("architecture %s", arch)}
}

// Kernel is the version of a Linux kernel: 6.12.3 is Kernel{6, 12}.
type Kernel struct{ Major, Minor uint64 }

// atLeast reports whether the kernel is not older than a version.
func (k Kernel) atLeast(v seccomp.KernelVersion) bool {
	return k.Major > v.Kernel || k.Major == v.Kernel && k.Minor >= v.Major
}

// DefaultKernel is the oldest kernel for which Default returns a program.
var DefaultKernel = Kernel{4, 8}

// Compile returns the program of a profile, a JSON text in Docker's format. The program is for an architecture in Go's
// name, amd64 or arm64, and for containers with certain capabilities (such as "CAP_SYS_ADMIN") on a certain kernel. It
// is a list of the kernel's struct sock_filter, 8 bytes each, at most 4,096 of them. Another architecture is an
// ErrUnsupported; an invalid profile, and one that does not fit into a program, is an ErrFile. The flags of the profile
// are ignored.
func Compile(profile, arch string, caps []string, kernel Kernel) ([]byte, error) {
	own, ok := abis[arch]
	if !ok {
		return nil, unsupportedArch(arch)
	}
	out, err := compile(profile, arch, own, caps, kernel)
	if err != nil {
		return nil, &fumehood.Error{Op: "compile seccomp profile", Class: fumehood.ErrFile, Err: err}
	}
	return out, nil
}

func compile(profile, arch string, own abi, caps []string, kernel Kernel) ([]byte, error) {
	var p seccomp.Seccomp
	if err := json.Unmarshal([]byte(profile), &p); err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	fallback, err := actionOf(p.DefaultAction, p.DefaultErrnoRet)
	if err != nil {
		return nil, fmt.Errorf("defaultAction: %w", err)
	}
	all, err := enabledABIs(&p, own)
	if err != nil {
		return nil, err
	}
	tables := make([]*table, len(all))
	for i, a := range all {
		tables[i] = newTable(a, fallback, stubbed(p.DefaultAction))
	}
	conditional := 0
	for i, call := range p.Syscalls {
		if call == nil {
			return nil, fmt.Errorf("syscalls[%d]: no rule", i)
		}
		if !applies(call, arch, caps, kernel) {
			continue
		}
		if conditional += len(call.Names) * len(call.Args); conditional > maxInstructions {
			return nil, fmt.Errorf("syscalls[%d]: more than %d conditions", i, maxInstructions)
		}
		if err := addRule(tables, call); err != nil {
			return nil, fmt.Errorf("syscalls[%d]: %w", i, err)
		}
	}
	return assemble(tables)
}

// enabledABIs returns the ABIs whose calls a profile filters, of those that a kernel with a native ABI has. The native ABI
// is the first.
func enabledABIs(p *seccomp.Seccomp, native abi) ([]abi, error) {
	if len(p.Architectures) > 0 && len(p.ArchMap) > 0 {
		return nil, errors.New("both architectures and archMap")
	}
	names := p.Architectures
	for _, a := range p.ArchMap {
		if a.Arch == native.name {
			names = a.SubArches
			break
		}
	}
	all := []abi{native}
	for _, a := range native.others {
		if slices.Contains(names, a.name) {
			all = append(all, a)
		}
	}
	return all, nil
}

// applies reports whether Docker uses a rule.
func applies(call *seccomp.Syscall, arch string, caps []string, kernel Kernel) bool {
	has := func(name string) bool { return slices.Contains(caps, name) }
	if out := call.Excludes; out != nil {
		if slices.Contains(out.Arches, arch) || slices.ContainsFunc(out.Caps, has) || out.MinKernel != nil && kernel.atLeast(*out.MinKernel) {
			return false
		}
	}
	in := call.Includes
	if in == nil {
		return true
	}
	for _, name := range in.Caps {
		if !has(name) {
			return false
		}
	}
	return (len(in.Arches) == 0 || slices.Contains(in.Arches, arch)) && (in.MinKernel == nil || kernel.atLeast(*in.MinKernel))
}

// addRule adds a rule to the tables.
func addRule(tables []*table, call *seccomp.Syscall) error {
	names := call.Names
	if call.Name != "" { //nolint:staticcheck // old profiles have it
		if len(names) > 0 {
			return errors.New("both name and names")
		}
		names = []string{call.Name} //nolint:staticcheck // as above
	}
	action, err := actionOf(call.Action, call.ErrnoRet)
	if err != nil {
		return err
	}
	choices, err := conditions(call.Args)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == "" {
			return errors.New("empty name")
		}
		for _, t := range tables {
			for _, conds := range choices {
				if err := t.addCall(name, rule{conds, action}); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	return nil
}

// The results of a program: SECCOMP_RET_... of Linux.
const (
	retKillProcess = 0x80000000
	retKillThread  = 0
	retTrap        = 0x30000
	retErrno       = 0x50000
	retTrace       = 0x7ff00000
	retLog         = 0x7ffc0000
	retAllow       = 0x7fff0000
)

const (
	eperm  = 1
	enosys = 38
)

// actionOf returns the result for an action. Without a number, an error is EPERM.
func actionOf(action specs.LinuxSeccompAction, number *uint) (uint32, error) {
	data := uint32(eperm)
	if number != nil {
		if *number > 0xffff {
			return 0, fmt.Errorf("errno %d: more than 65535", *number)
		}
		data = uint32(*number)
	}
	switch action {
	case specs.ActKill, specs.ActKillThread:
		return retKillThread, nil
	case specs.ActKillProcess:
		return retKillProcess, nil
	case specs.ActTrap:
		return retTrap, nil
	case specs.ActErrno:
		return retErrno | data, nil
	case specs.ActTrace:
		return retTrace | data, nil
	case specs.ActLog:
		return retLog, nil
	case specs.ActAllow:
		return retAllow, nil
	case specs.ActNotify: // no process would answer
	}
	return 0, fmt.Errorf("unknown action %.40q", action)
}

// stubbed reports whether calls above all that a profile names fail with ENOSYS, as under runc. Programs then use an
// older call; they take EPERM for a failure.
func stubbed(fallback specs.LinuxSeccompAction) bool {
	return fallback != specs.ActAllow && fallback != specs.ActLog && fallback != specs.ActTrace
}
