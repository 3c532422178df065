package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/seccomp"
	"github.com/fumehood/fumehood/test/tier"
)

// own returns Fumehood's profile.
func own(tb testing.TB) string {
	tb.Helper()
	profile, err := seccomp.Load("")
	if err != nil {
		tb.Fatal(err)
	}
	return profile
}

func mustCompile(tb testing.TB, profile, arch string, caps ...string) []byte {
	tb.Helper()
	program, err := Compile(profile, arch, caps, Kernel{6, 12})
	if err != nil {
		tb.Fatal(err)
	}
	return program
}

// The committed programs are those of the profile, for the capabilities of Fumehood's containers.
func TestDefault(t *testing.T) {
	caps := []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETUID"}
	for arch := range abis {
		t.Run(arch, func(t *testing.T) {
			got, err := Default(arch)
			if err != nil {
				t.Fatal(err)
			}
			want, err := Compile(own(t), arch, caps, DefaultKernel)
			if err != nil {
				t.Fatal(err)
			}
			if newer := mustCompile(t, own(t), arch); !bytes.Equal(got, want) || !bytes.Equal(got, newer) {
				t.Errorf("not what the profile makes: go generate ./internal/native/filter")
			}
		})
	}
	if _, err := Default("riscv64"); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("riscv64: got %v", err)
	}
}

// values are arguments that profiles check, and those next to them.
func values() []uint64 {
	var all []uint64
	for v := range uint64(50) {
		all = append(all, v, v<<32, 1<<32+v)
	}
	for _, v := range []uint64{8, 0x20000, 0x20008, 0x7e020000, 0x40000000, 0x40000001, 0x3fffffff, 0xffffffff, 1 << 31, 1 << 32, 1 << 63} {
		all = append(all, v-1, v, v+1)
	}
	return append(all, 1<<64-1)
}

// compare compares a program with what is expected for every call, also of ABIs that the profile does not name.
func compare(t *testing.T, program []byte, want *expected, arguments func(number uint32) [][maxArgs]uint64) {
	t.Helper()
	m := newMachine(t, program)
	failures := 0
	for _, arch := range []uint32{auditX86_64, auditI386, auditAARCH64, auditARM, 0, 0xc0000016} {
		for _, base := range []uint32{0, 1 << 30, 1 << 31, 3 << 30, 0xf0000, 1<<32 - 600} {
			for i := range uint32(600) {
				for _, args := range arguments(base + i) {
					e := event{base + i, arch, args}
					if got, want := m.run(e), want.of(e); got != want {
						t.Errorf("%+v: got %#x, want %#x", e, got, want)
						if failures++; failures == 10 {
							t.Fatal("and more")
						}
					}
				}
			}
		}
	}
}

func TestCompile_Own(t *testing.T) {
	all := values()
	var sets [][maxArgs]uint64
	for _, v := range all {
		sets = append(sets, [maxArgs]uint64{v}, [maxArgs]uint64{0, v, 1}, [maxArgs]uint64{1, v}, [maxArgs]uint64{7, 7, v})
	}
	profile := own(t)
	var checked []string
	for arch := range abis {
		for _, caps := range [][]string{nil, {"CAP_SYS_ADMIN"}, {"CAP_SYS_NICE", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE"}} {
			t.Run(arch+strings.Join(caps, ""), func(t *testing.T) {
				want := newExpected(t, profile, arch, caps)
				for _, call := range want.calls {
					if len(call.Args) > 0 {
						checked = append(checked, call.Names...)
					}
				}
				compare(t, mustCompile(t, profile, arch, caps...), want, func(number uint32) [][maxArgs]uint64 {
					for _, names := range want.names {
						if name := names[number]; name == "socketcall" || name == "ipc" || slices.Contains(checked, name) {
							return sets
						}
					}
					return sets[:1]
				})
			})
		}
	}
	if !slices.Contains(checked, "socket") || !slices.Contains(checked, "clone") {
		t.Errorf("calls with checked arguments: %q", checked)
	}
}

// randomProfile returns a profile with one action beside the default, whose rules may overlap.
func randomProfile(rnd *rand.Rand) string {
	names := []string{"read", "socket", "bind", "semop", "personality", "clone", "ioctl", "fstatat64", "openat2", "accept4", "no_such_call", "execve"}
	actions := []specs.LinuxSeccompAction{specs.ActAllow, specs.ActErrno, specs.ActKill, specs.ActTrap, specs.ActLog, specs.ActTrace, specs.ActKillProcess}
	ops := []specs.LinuxSeccompOperator{
		specs.OpEqualTo, specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpGreaterThan, specs.OpGreaterEqual, specs.OpMaskedEqual,
	}
	all := values()
	p := specs.LinuxSeccomp{DefaultAction: actions[rnd.IntN(len(actions))]}
	for _, arch := range []specs.Arch{specs.ArchX86, specs.ArchX32, specs.ArchARM} {
		if rnd.IntN(2) == 0 {
			p.Architectures = append(p.Architectures, arch)
		}
	}
	rule := specs.LinuxSyscall{Action: actions[rnd.IntN(len(actions))]}
	if rnd.IntN(3) == 0 {
		number := uint(rnd.IntN(100))
		rule.ErrnoRet = &number
	}
	for range rnd.IntN(20) {
		rule.Names = []string{names[rnd.IntN(len(names))], names[rnd.IntN(len(names))]}
		rule.Args = nil
		for index := range uint(rnd.IntN(4)) {
			arg := specs.LinuxSeccompArg{Index: index, Value: all[rnd.IntN(len(all))], ValueTwo: all[rnd.IntN(len(all))], Op: ops[rnd.IntN(len(ops))]}
			if arg.Op == specs.OpMaskedEqual {
				arg.Value |= 1 // an empty mask is no condition
			}
			rule.Args = append(rule.Args, arg)
		}
		p.Syscalls = append(p.Syscalls, rule)
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestCompile_Random(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	all := values()
	for i := range tier.Pick(t, 10, 20, 200) {
		profile := randomProfile(rnd)
		arch := []string{"amd64", "arm64"}[i%2]
		want := newExpected(t, profile, arch, nil)
		compare(t, mustCompile(t, profile, arch), want, func(number uint32) [][maxArgs]uint64 {
			sets := make([][maxArgs]uint64, 1)
			for _, names := range want.names {
				if name := names[number]; name != "" && number < 1<<30+600 {
					sets = make([][maxArgs]uint64, 4)
				}
			}
			for i := range sets {
				for k := range 4 {
					sets[i][k] = all[rnd.IntN(len(all))]
				}
			}
			return sets
		})
		if t.Failed() {
			t.Fatal(profile)
		}
	}
}

// checks returns a profile that allows a call if one of n conditions holds, none of which can be merged with another.
func checks(n int) string {
	var rules []string
	for i := range n {
		rules = append(rules, fmt.Sprintf(`{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": %d, "op": "SCMP_CMP_EQ"}, {"index": 2, "value": %d, "op": "SCMP_CMP_GT"}]}`, i<<33+i, 2*i))
	}
	return `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [` + strings.Join(rules, ",") + `]}`
}

// Conditions that are further apart than a conditional jump reaches.
func TestCompile_Far(t *testing.T) {
	const n = 400
	m := newMachine(t, mustCompile(t, checks(n), "arm64"))
	for i := range uint64(n) {
		for _, tt := range []struct {
			args [maxArgs]uint64
			want uint32
		}{
			{[maxArgs]uint64{i<<33 + i, 0, 2*i + 1}, retAllow},
			{[maxArgs]uint64{i<<33 + i, 0, 2 * i}, retErrno | eperm},
			{[maxArgs]uint64{i<<33 + i + 1, 0, 2*i + 1}, retErrno | eperm},
		} {
			if got := m.run(event{63, auditAARCH64, tt.args}); got != tt.want {
				t.Fatalf("%x: got %#x, want %#x", tt.args, got, tt.want)
			}
		}
	}
}

func TestCompile_Errors(t *testing.T) {
	rule := func(text string) string {
		return `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [` + text + `]}`
	}
	for _, tt := range []struct{ name, profile, want string }{
		{"json", "unconfined", "invalid JSON"},
		{"default action", `{}`, "defaultAction: unknown action"},
		{"architectures", `{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86"], "archMap": [{"architecture": "SCMP_ARCH_X86_64"}]}`, "both architectures and archMap"},
		{"null", rule(`null`), "syscalls[0]: no rule"},
		{"action", rule(`{"names": ["read"], "action": "SCMP_ACT_NOTIFY"}`), "syscalls[0]: unknown action"},
		{"two names", rule(`{"name": "read", "names": ["read"], "action": "SCMP_ACT_KILL"}`), "both name and names"},
		{"empty name", rule(`{"names": [""], "action": "SCMP_ACT_KILL"}`), "empty name"},
		{"errno", rule(`{"names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": 65536}`), "errno 65536"},
		{"op", rule(`{"names": ["read"], "action": "SCMP_ACT_KILL", "args": [{"index": 0, "op": "EQ"}]}`), "args[0]: unknown op"},
		{"index", rule(`{"names": ["read"], "action": "SCMP_ACT_KILL", "args": [{"index": 6, "op": "SCMP_CMP_EQ"}]}`), "args[0]: index 6"},
		{"conflict", rule(`{"names": ["read"], "action": "SCMP_ACT_KILL", "args": [{"index": 0, "op": "SCMP_CMP_EQ"}]}, {"names": ["read"], "action": "SCMP_ACT_TRAP", "args": [{"index": 0, "op": "SCMP_CMP_EQ"}]}`), "syscalls[1]: read: two actions for the same arguments"},
		{"size", checks(1000), "too many rules"},
		{"conditions", checks(3000), "more than 4096 conditions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(tt.profile, "amd64", nil, Kernel{})
			if !errors.Is(err, fumehood.ErrFile) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := Compile(own(t), "s390x", nil, Kernel{}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("s390x: got %v", err)
	}
}

func TestCompile_Choice(t *testing.T) {
	for _, tt := range []struct {
		name, rule string
		applies    bool
	}{
		{"always", ``, true},
		{"old name", `, "names": null, "name": "read"`, true},
		{"cap", `, "includes": {"caps": ["CAP_A", "CAP_B"]}`, true},
		{"lacking cap", `, "includes": {"caps": ["CAP_A", "CAP_C"]}`, false},
		{"excluded cap", `, "excludes": {"caps": ["CAP_C", "CAP_B"]}`, false},
		{"arch", `, "includes": {"arches": ["arm64", "amd64"]}`, true},
		{"other arch", `, "includes": {"arches": ["arm64"]}`, false},
		{"excluded arch", `, "excludes": {"arches": ["amd64"]}`, false},
		{"kernel", `, "includes": {"minKernel": "5.10"}`, true},
		{"older kernel", `, "includes": {"minKernel": "4.19"}`, true},
		{"newer kernel", `, "includes": {"minKernel": "5.11"}`, false},
		{"newer major", `, "includes": {"minKernel": "6.1"}`, false},
		{"excluded kernel", `, "excludes": {"minKernel": "5.10"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			profile := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_TRAP"` + tt.rule + `}]}`
			program, err := Compile(profile, "amd64", []string{"CAP_A", "CAP_B"}, Kernel{5, 10})
			if err != nil {
				t.Fatal(err)
			}
			if got := newMachine(t, program).run(event{arch: auditX86_64}) == retTrap; got != tt.applies {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Rules with different actions for a call: the results are libseccomp's.
func TestCompile_Precedence(t *testing.T) {
	const (
		one     = `{"names": ["read"], "action": "SCMP_ACT_TRAP", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]}`
		below9  = `{"names": ["read"], "action": "SCMP_ACT_LOG", "args": [{"index": 0, "value": 9, "op": "SCMP_CMP_LT"}]}`
		below5  = `{"names": ["read"], "action": "SCMP_ACT_TRAP", "args": [{"index": 0, "value": 5, "op": "SCMP_CMP_LT"}]}`
		above0  = `{"names": ["read"], "action": "SCMP_ACT_KILL", "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_GT"}]}`
		second  = `{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 1, "op": "SCMP_CMP_EQ"}]}`
		both    = `{"names": ["read"], "action": "SCMP_ACT_KILL", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 1, "value": 1, "op": "SCMP_CMP_EQ"}]}`
		all     = `{"names": ["read"], "action": "SCMP_ACT_KILL_PROCESS"}`
		all2    = `{"names": ["read"], "action": "SCMP_ACT_ALLOW"}`
		notMask = `{"names": ["read"], "action": "SCMP_ACT_KILL_PROCESS", "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_MASKED_EQ"}]}`
	)
	for _, tt := range []struct {
		name  string
		rules []string
		want  uint32 // for read(1, 1)
	}{
		{"equal before less", []string{below9, one}, retTrap},
		{"less before greater", []string{above0, below9}, retLog},
		{"smaller before larger", []string{below9, below5}, retTrap},
		{"later argument", []string{one, second}, retAllow},
		{"prefix", []string{one, both}, retTrap},
		{"all", []string{one, all, below9}, retKillProcess},
		{"first of all", []string{all2, all}, retAllow},
		{"empty mask", []string{one, notMask}, retKillProcess},
	} {
		t.Run(tt.name, func(t *testing.T) {
			program := mustCompile(t, `{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [`+strings.Join(tt.rules, ",")+`]}`, "amd64")
			if got := newMachine(t, program).run(event{0, auditX86_64, [maxArgs]uint64{1, 1}}); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
}

// Calls above all that the profile names, where it names none of x32.
func TestCompile_NewCalls(t *testing.T) {
	m := newMachine(t, mustCompile(t, `{"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X32"], "syscalls": [{"names": ["uselib"], "action": "SCMP_ACT_ALLOW"}]}`, "amd64"))
	for number, want := range map[uint32]uint32{
		133: retErrno | eperm, 134: retAllow, 135: retErrno | enosys, 1 << 31: retErrno | enosys,
		x32Bit: retErrno | eperm, x32Bit | 134: retErrno | eperm, x32Bit | 600: retErrno | eperm, 3 << 30: retErrno | eperm,
	} {
		if got := m.run(event{number: number, arch: auditX86_64}); got != want {
			t.Errorf("%d: got %#x, want %#x", number, got, want)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(checks(3), false)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 5 {
		f.Add(randomProfile(rnd), rnd.IntN(2) == 0)
	}
	f.Fuzz(func(t *testing.T, profile string, amd bool) {
		arch := "arm64"
		if amd {
			arch = "amd64"
		}
		program, err := Compile(profile, arch, []string{"CAP_SYS_ADMIN"}, Kernel{6, 1})
		if err != nil {
			if !errors.Is(err, fumehood.ErrFile) {
				t.Errorf("got %v", err)
			}
			return
		}
		if n := len(program) / 8; n == 0 || n > maxInstructions {
			t.Errorf("%d instructions", n)
		}
		m := newMachine(t, program)
		for _, audit := range []uint32{auditX86_64, auditI386, auditAARCH64, auditARM} {
			for _, number := range []uint32{0, 41, 59, 102, 1 << 30, 1<<32 - 1} {
				m.run(event{number, audit, [maxArgs]uint64{1, 2, 3, 4, 5, 6}})
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	profile := own(b)
	for b.Loop() {
		if _, err := Compile(profile, "amd64", nil, DefaultKernel); err != nil {
			b.Fatal(err)
		}
	}
}

func TestSyscalls_Columns(t *testing.T) {
	for arch, a := range abis {
		for _, a := range append([]abi{a}, a.others...) {
			name := strings.Fields(strings.SplitN(syscalls, "\n", 2)[0])[a.column]
			if ofABI[name] != a.audit {
				t.Errorf("%s: column %s of %s", arch, name, a.name)
			}
		}
	}
}
