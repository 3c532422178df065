package filter

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/moby/profiles/seccomp"
)

// expected is a profile that is read again for each call, without anything of the compiler but the numbers.
type expected struct {
	profile  seccomp.Seccomp
	fallback uint32
	calls    []*seccomp.Syscall           // the rules that apply to the container
	names    map[uint32]map[uint32]string // by architecture and number
	last     map[uint32]map[bool]uint32   // by architecture and whether the number is x32's
	caps     []string
	arch     string
}

// results are the results of actions, if the error is not another number.
var results = map[string]uint32{
	"SCMP_ACT_KILL": 0, "SCMP_ACT_KILL_THREAD": 0, "SCMP_ACT_KILL_PROCESS": 0x80000000, "SCMP_ACT_TRAP": 0x30000,
	"SCMP_ACT_ERRNO": 0x50001, "SCMP_ACT_TRACE": 0x7ff00001, "SCMP_ACT_LOG": 0x7ffc0000, "SCMP_ACT_ALLOW": 0x7fff0000,
}

// ofABI are the architectures that the kernel reports for the columns of syscalls.txt.
var ofABI = map[string]uint32{"amd64": 0xc000003e, "x32": 0xc000003e, "386": 0x40000003, "arm64": 0xc00000b7, "arm": 0x40000028}

func newExpected(t *testing.T, profile, arch string, caps []string) *expected {
	t.Helper()
	e := &expected{names: map[uint32]map[uint32]string{}, last: map[uint32]map[bool]uint32{}, caps: caps, arch: arch}
	if err := json.Unmarshal([]byte(profile), &e.profile); err != nil {
		t.Fatal(err)
	}
	e.fallback = e.result(string(e.profile.DefaultAction), e.profile.DefaultErrnoRet)
	e.choose()
	native := map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}[arch]
	tokens := []string{native}
	for _, a := range e.profile.Architectures {
		tokens = append(tokens, string(a))
	}
	for _, a := range e.profile.ArchMap {
		if string(a.Arch) == native {
			for _, sub := range a.SubArches {
				tokens = append(tokens, string(sub))
			}
		}
	}
	columns := map[string]map[string]string{ // those of the other kernel's ABIs do not exist
		"amd64": {"SCMP_ARCH_X86_64": "amd64", "SCMP_ARCH_X86": "386", "SCMP_ARCH_X32": "x32"},
		"arm64": {"SCMP_ARCH_AARCH64": "arm64", "SCMP_ARCH_ARM": "arm"},
	}[arch]
	for _, token := range tokens {
		e.addABI(columns[token])
	}
	return e
}

func (e *expected) addABI(column string) {
	if column == "" {
		return
	}
	audit := ofABI[column]
	if e.names[audit] == nil {
		e.names[audit], e.last[audit] = map[uint32]string{}, map[bool]uint32{}
	}
	for name, number := range numbersOf(column) {
		e.names[audit][number] = name
		if column == "386" && slices.Contains(multiplexed, name) {
			continue
		}
		x32 := column == "x32"
		last := e.last[audit][x32]
		for _, call := range e.calls {
			if slices.Contains(call.Names, name) {
				last = max(last, number)
			}
		}
		e.last[audit][x32] = last
	}
}

// numbersOf returns a column of the table of calls.
func numbersOf(column string) map[string]uint32 {
	lines := strings.Split(strings.TrimSpace(syscalls), "\n")
	at := slices.Index(strings.Fields(lines[0]), column)
	all := map[string]uint32{}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		var n uint32
		if json.Unmarshal([]byte(fields[at]), &n) != nil {
			continue
		}
		if column == "x32" {
			n |= 1 << 30
		}
		all[fields[0]] = n
	}
	return all
}

// multiplexed are the calls that 32-bit programs on x86 can make through socketcall and ipc.
var multiplexed = strings.Fields(`socket bind connect listen accept getsockname getpeername socketpair send recv sendto recvfrom
	shutdown setsockopt getsockopt sendmsg recvmsg accept4 recvmmsg sendmmsg
	semop semget semctl semtimedop msgsnd msgrcv msgget msgctl shmat shmdt shmget shmctl`)

// numbers by which socketcall and ipc make them.
var byNumber = map[string]map[uint64]string{
	"socketcall": {
		1: "socket", 2: "bind", 3: "connect", 4: "listen", 5: "accept", 6: "getsockname", 7: "getpeername", 8: "socketpair", 9: "send",
		10: "recv", 11: "sendto", 12: "recvfrom", 13: "shutdown", 14: "setsockopt", 15: "getsockopt", 16: "sendmsg", 17: "recvmsg",
		18: "accept4", 19: "recvmmsg", 20: "sendmmsg",
	},
	"ipc": {
		1: "semop", 2: "semget", 3: "semctl", 4: "semtimedop", 11: "msgsnd", 12: "msgrcv", 13: "msgget", 14: "msgctl",
		21: "shmat", 22: "shmdt", 23: "shmget", 24: "shmctl",
	},
}

// choose sets the rules that apply to the container.
func (e *expected) choose() {
	for _, call := range e.profile.Syscalls {
		in, out := call.Includes, call.Excludes
		if in == nil {
			in = &seccomp.Filter{}
		}
		if out == nil {
			out = &seccomp.Filter{}
		}
		ok := len(in.Arches) == 0 || slices.Contains(in.Arches, e.arch)
		for _, name := range in.Caps {
			ok = ok && slices.Contains(e.caps, name)
		}
		for _, name := range out.Caps {
			ok = ok && !slices.Contains(e.caps, name)
		}
		if ok && !slices.Contains(out.Arches, e.arch) {
			e.calls = append(e.calls, call)
		}
	}
}

func (e *expected) result(action string, number *uint) uint32 {
	result := results[action]
	if number != nil && (action == "SCMP_ACT_ERRNO" || action == "SCMP_ACT_TRACE") {
		result = result&^0xffff | uint32(*number)
	}
	return result
}

// of returns the result for a call.
func (e *expected) of(c event) uint32 {
	const enosys = 0x50026
	names, ok := e.names[c.arch]
	if !ok {
		return results["SCMP_ACT_KILL"]
	}
	x32Call := c.arch == 0xc000003e && c.number&(1<<30) != 0
	last, ok := e.last[c.arch][x32Call]
	permissive := slices.Contains([]uint32{results["SCMP_ACT_ALLOW"], results["SCMP_ACT_LOG"]}, e.fallback) || e.profile.DefaultAction == "SCMP_ACT_TRACE"
	if ok && last != 0 && c.number > last && !permissive {
		return enosys
	}
	if _, enabled := e.last[c.arch][true]; c.arch == 0xc000003e && !enabled && c.number >= 1<<30 && c.number != 1<<32-1 {
		return results["SCMP_ACT_KILL"]
	}
	wide := c.arch&0x80000000 != 0 && !x32Call
	return e.rules(names[c.number], c, wide)
}

// rules returns the result of the rules for a call by its name.
func (e *expected) rules(name string, c event, wide bool) uint32 {
	if name == "" {
		return e.fallback
	}
	found := e.fallback
	for _, call := range e.calls {
		result := e.result(string(call.Action), call.ErrnoRet)
		if result == e.fallback {
			continue
		}
		for _, listed := range call.Names {
			skip := -1 // the argument that is the number of the call
			if listed != name {
				if c.arch != 0x40000003 || byNumber[name][c.args[0]&0xffffffff] != listed {
					continue
				}
				skip = 0
			}
			conditional, holds, any, repeated := false, true, false, false
			seen := map[uint]bool{}
			for _, arg := range call.Args {
				if int(arg.Index) == skip {
					continue
				}
				conditional = true
				repeated = repeated || seen[arg.Index]
				seen[arg.Index] = true
				one := matches(string(arg.Op), c.args[arg.Index], arg.Value, arg.ValueTwo, wide)
				holds = holds && one
				any = any || one
			}
			switch {
			case !conditional && skip < 0:
				return result // of the first one without conditions
			case holds, repeated && any:
				found = result
			}
		}
	}
	return found
}

func matches(op string, got, value, two uint64, wide bool) bool {
	if !wide {
		got, value, two = got&0xffffffff, value&0xffffffff, two&0xffffffff
	}
	return map[string]bool{
		"SCMP_CMP_EQ": got == value, "SCMP_CMP_NE": got != value, "SCMP_CMP_LT": got < value, "SCMP_CMP_LE": got <= value,
		"SCMP_CMP_GT": got > value, "SCMP_CMP_GE": got >= value, "SCMP_CMP_MASKED_EQ": got&value == two&value,
	}[op]
}
