package filter

import (
	_ "embed" // the numbers of system calls
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// syscalls are the numbers of the system calls by ABI, in columns.
//
//go:embed syscalls.txt
var syscalls string

// abi is an interface of a kernel to programs: its own system calls with numbers of their own.
type abi struct {
	name   specs.Arch
	column int    // in syscalls
	audit  uint32 // AUDIT_ARCH_..., the kernel's number for it
	bit    uint32 // set in the numbers of all calls
	wide   bool   // arguments have 64 bits
	muxed  bool   // calls of sockets and of System V IPC can also be made by socketcall and ipc
	others []abi  // that a kernel of this ABI may also have
}

// x32Bit is set in the numbers of the calls of x32. The kernel reports them as calls of x86_64.
const x32Bit = 1 << 30

const (
	auditX86_64  = 0xc000003e
	auditI386    = 0x40000003
	auditAARCH64 = 0xc00000b7
	auditARM     = 0x40000028
)

// abis are the native ABIs, by Go's name of the architecture.
var abis = map[string]abi{
	"amd64": {name: specs.ArchX86_64, column: 1, audit: auditX86_64, wide: true, others: []abi{
		{name: specs.ArchX86, column: 2, audit: auditI386, muxed: true},
		{name: specs.ArchX32, column: 5, audit: auditX86_64, bit: x32Bit},
	}},
	"arm64": {name: specs.ArchAARCH64, column: 3, audit: auditAARCH64, wide: true, others: []abi{
		{name: specs.ArchARM, column: 4, audit: auditARM},
	}},
}

// numbers returns the numbers of an ABI's calls by name.
func (a abi) numbers() map[string]uint32 {
	all := map[string]uint32{}
	for line := range strings.Lines(syscalls) {
		fields := strings.Fields(line)
		if n, err := strconv.ParseUint(fields[a.column], 10, 30); err == nil {
			all[fields[0]] = uint32(n) | a.bit
		}
	}
	return all
}

// socketcalls and ipcs are the calls that socketcall and ipc make, in the order of the numbers by which they do. Empty
// names are numbers without a call.
var (
	socketcalls = []string{
		"", "socket", "bind", "connect", "listen", "accept", "getsockname", "getpeername", "socketpair", "send", "recv", "sendto",
		"recvfrom", "shutdown", "setsockopt", "getsockopt", "sendmsg", "recvmsg", "accept4", "recvmmsg", "sendmmsg",
	}
	ipcs = []string{
		"", "semop", "semget", "semctl", "semtimedop", "", "", "", "", "", "", "msgsnd", "msgrcv", "msgget", "msgctl",
		"", "", "", "", "", "", "shmat", "shmdt", "shmget", "shmctl",
	}
)

// multiplexer returns the call that also makes the named one, and the number by which it does. For other names it
// returns an empty string.
func multiplexer(name string) (call string, number uint64) {
	if i := slices.Index(socketcalls, name); i > 0 {
		return "socketcall", uint64(i)
	}
	if i := slices.Index(ipcs, name); i > 0 {
		return "ipc", uint64(i)
	}
	return "", 0
}
