package docker_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/native/filter"
	"github.com/fumehood/fumehood/provider/docker"
)

// everyCall makes every system call in a new sandbox by test/dockertest/syscalls/every, and returns their results. A
// filter, if given, applies to them.
func everyCall(t *testing.T, options docker.Options, every, bpf []byte) map[string]string {
	t.Helper()
	sb := start(t, newProvider(t, options), fumehood.Spec{Image: busybox})
	args := []string{"/tmp/every"}
	write := func(file string, text []byte) {
		if err := sb.WriteFile(t.Context(), file, text, fumehood.WriteOptions{Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
	}
	write(args[0], every)
	if bpf != nil {
		args = append(args, "/tmp/filter")
		write(args[1], bpf)
	}
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: args, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if !res.Success() {
		t.Fatalf("%+v: %s", res, res.Stderr.Text())
	}
	found := map[string]string{}
	if err := json.Unmarshal(res.Stdout.Bytes, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// newCall reports whether libseccomp may not know a call by its name yet: Debian 12's knows those of Linux 5.17.
func newCall(call string) bool {
	number, err := strconv.Atoi(strings.Fields(strings.TrimPrefix(call, "x32 "))[0])
	return err != nil || number > 450 || number == 335 || number == 336
}

// The filters of internal/native/filter decide every call as the Engine's, which libseccomp makes.
func TestFilter_Engine(t *testing.T) {
	t.Parallel()
	arches := map[string][]string{"amd64": {"amd64", "386"}, "arm64": {"arm64"}}[runtime.GOARCH]
	program, err := filter.Default(runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	const text = `{"defaultAction": "SCMP_ACT_ALLOW",
		"archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]}],
		"syscalls": [
			{"names": ["mount", "semget", "shmctl", "ptrace", "chown32"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95},
			{"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95, "args": [{"index": 0, "value": 10, "op": "SCMP_CMP_GT"}]},
			{"names": ["socketpair"], "action": "SCMP_ACT_ERRNO", "errnoRet": 18, "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_NE"}]},
			{"names": ["personality"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 8, "valueTwo": 8, "op": "SCMP_CMP_MASKED_EQ"}]},
			{"names": ["setpriority"], "action": "SCMP_ACT_ERRNO", "errnoRet": 20, "args": [
				{"index": 0, "value": 2, "op": "SCMP_CMP_GE"}, {"index": 1, "value": 3, "op": "SCMP_CMP_EQ"}]},
			{"names": ["kcmp"], "action": "SCMP_ACT_ERRNO", "errnoRet": 21, "args": [
				{"index": 0, "value": 2, "op": "SCMP_CMP_EQ"}, {"index": 0, "value": 3, "op": "SCMP_CMP_EQ"}]},
			{"names": ["kcmp"], "action": "SCMP_ACT_ERRNO", "errnoRet": 17, "args": [{"index": 1, "value": 5, "op": "SCMP_CMP_GE"}]}
		]}`
	file := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := filter.Compile(text, runtime.GOARCH, nil, filter.DefaultKernel)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range arches {
		every := built(t, "syscalls/every", arch)
		for _, tt := range []struct {
			name    string
			options docker.Options
			filter  []byte
			errnos  []string // of calls that the filter denies
		}{
			{"default", docker.Options{}, program, []string{"EPERM", "ENOSYS"}},
			{"file", docker.Options{Seccomp: file}, own, []string{"ENOTSUP", "EXDEV", "ENOTDIR", "EISDIR", "EEXIST"}},
		} {
			t.Run(tt.name+"/"+arch, func(t *testing.T) {
				t.Parallel()
				want := everyCall(t, tt.options, every, nil)
				got := everyCall(t, docker.Options{Seccomp: "unconfined"}, every, tt.filter)
				for _, call := range slices.Sorted(maps.Keys(want)) {
					if got[call] != want[call] && (!newCall(call) || !slices.Contains([]string{"EPERM", "ENOSYS"}, want[call])) {
						t.Errorf("%s: got %q, want %q", call, got[call], want[call])
					}
				}
				for _, errno := range tt.errnos {
					if !slices.Contains(slices.Collect(maps.Values(want)), errno) {
						t.Errorf("no call fails with %s", errno)
					}
				}
				if len(want) < 700 || len(got) != len(want) {
					t.Errorf("%d calls, %d with the filter", len(want), len(got))
				}
			})
		}
	}
}
