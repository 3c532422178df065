package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestText_Committed(t *testing.T) {
	want, err := text()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../profile.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("profile.json is not what go.mod's version makes: go generate ./internal/seccomp")
	}
}

// rulesOf returns the rules of a profile as text, one for each name.
func rulesOf(t *testing.T, p *seccomp.Seccomp) map[string]bool {
	t.Helper()
	rules := map[string]bool{}
	for _, rule := range p.Syscalls {
		for _, name := range rule.Names {
			one := *rule
			one.Names, one.Comment = nil, ""
			text, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			rules[name+" "+string(text)] = true
		}
	}
	return rules
}

// The committed profile is Docker's, without the removed calls and with the restricted ones changed.
func TestProfile_Difference(t *testing.T) {
	text, err := os.ReadFile("../profile.json")
	if err != nil {
		t.Fatal(err)
	}
	var own seccomp.Seccomp
	if err := json.Unmarshal(text, &own); err != nil {
		t.Fatal(err)
	}
	docker := seccomp.DefaultProfile()
	mine, dockers := rulesOf(t, &own), rulesOf(t, docker)
	var added, without []string
	for _, rule := range slices.Sorted(maps.Keys(mine)) {
		if !dockers[rule] {
			added = append(added, rule)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(dockers)) {
		if !mine[rule] {
			without = append(without, rule)
		}
	}
	wantAdded := []string{
		`fcntl {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294966272,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294967281,"valueTwo":1025,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294967282,"valueTwo":1026,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294967284,"valueTwo":1028,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294967288,"valueTwo":1032,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_LEASE"]}}`,
		`fcntl64 {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294966272,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl64 {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294967281,"valueTwo":1025,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl64 {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294967282,"valueTwo":1026,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl64 {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294967284,"valueTwo":1028,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl64 {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":4294967288,"valueTwo":1032,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`fcntl64 {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_LEASE"]}}`,
		`prlimit64 {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":0,"op":"SCMP_CMP_EQ"}]}`,
		`prlimit64 {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":2,"value":0,"op":"SCMP_CMP_EQ"}]}`,
		`prlimit64 {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_RESOURCE"]}}`,
		`sched_setattr {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":0,"op":"SCMP_CMP_EQ"}]}`,
		`sched_setattr {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_NICE"]}}`,
		`sched_setscheduler {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":0,"op":"SCMP_CMP_EQ"}]}`,
		`sched_setscheduler {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":3221225471,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`sched_setscheduler {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":3221225471,"valueTwo":1,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`sched_setscheduler {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":3221225471,"valueTwo":2,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`sched_setscheduler {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":3221225471,"valueTwo":3,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`sched_setscheduler {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_NICE"]}}`,
		`setpriority {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":0,"op":"SCMP_CMP_EQ"},{"index":1,"value":0,"op":"SCMP_CMP_EQ"}]}`,
		`setpriority {"names":null,"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"op":"SCMP_CMP_EQ"},{"index":1,"value":0,"op":"SCMP_CMP_EQ"}]}`,
		`setpriority {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_NICE"]}}`,
		`socketcall {"names":null,"action":"SCMP_ACT_ERRNO","errnoRet":38}`,
	}
	wantWithout := []string{
		`bpf {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_BPF"]}}`,
		`bpf {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}`,
		`fcntl {"names":null,"action":"SCMP_ACT_ALLOW"}`,
		`fcntl64 {"names":null,"action":"SCMP_ACT_ALLOW"}`,
		`perf_event_open {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_PERFMON"]}}`,
		`perf_event_open {"names":null,"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}`,
		`prlimit64 {"names":null,"action":"SCMP_ACT_ALLOW"}`,
		`sched_setattr {"names":null,"action":"SCMP_ACT_ALLOW"}`,
		`sched_setscheduler {"names":null,"action":"SCMP_ACT_ALLOW"}`,
		`setpriority {"names":null,"action":"SCMP_ACT_ALLOW"}`,
		`socketcall {"names":null,"action":"SCMP_ACT_ALLOW"}`,
	}
	if !slices.Equal(added, wantAdded) || !slices.Equal(without, wantWithout) {
		t.Errorf("added:\n%s\nwithout:\n%s", strings.Join(added, "\n"), strings.Join(without, "\n"))
	}
	own.Syscalls, docker.Syscalls = nil, nil
	if a, b := jsonOf(t, &own), jsonOf(t, docker); a != b {
		t.Errorf("other fields: got %s, want %s", a, b)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// No rule allows a removed call, for any architecture or capability.
func TestProfile_Denied(t *testing.T) {
	p, err := profile()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range removed {
		t.Run(name, func(t *testing.T) {
			for _, rule := range p.Syscalls {
				if rule.Action != specs.ActErrno && slices.Contains(rule.Names, name) {
					t.Errorf("%+v", rule)
				}
			}
		})
	}
}

func TestCheckFamilies(t *testing.T) {
	for _, tt := range []struct {
		name  string
		args  []specs.LinuxSeccompArg
		allow bool
	}{
		{"another", []specs.LinuxSeccompArg{{Value: 2, Op: specs.OpEqualTo}}, true},
		{"below", []specs.LinuxSeccompArg{{Value: 38, Op: specs.OpLessThan}}, true},
		{"all", nil, false},
		{"vsock", []specs.LinuxSeccompArg{{Value: 40, Op: specs.OpEqualTo}}, false},
		{"alg", []specs.LinuxSeccompArg{{Value: 38, Op: specs.OpEqualTo}}, false},
		{"above", []specs.LinuxSeccompArg{{Value: 38, Op: specs.OpGreaterThan}}, false},
		{"but one", []specs.LinuxSeccompArg{{Value: 40, Op: specs.OpNotEqual}}, false},
		{"below 41", []specs.LinuxSeccompArg{{Value: 41, Op: specs.OpLessThan}}, false},
		{"by type", []specs.LinuxSeccompArg{{Index: 1, Value: 1, Op: specs.OpEqualTo}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := checkFamilies(&seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{"socket"}, Args: tt.args}})
			if (err == nil) != tt.allow {
				t.Errorf("got %v", err)
			}
		})
	}
}
