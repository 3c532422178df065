package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// builds are functions that return the program of a package of test/dockertest, by package and architecture.
var builds sync.Map

// built returns the static program of a package of test/dockertest for an architecture. It is built once for all tests.
func built(t *testing.T, pkg, arch string) []byte {
	t.Helper()
	build, _ := builds.LoadOrStore(pkg+" "+arch, sync.OnceValues(func() ([]byte, error) {
		dir, err := os.MkdirTemp("", "built")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		out := filepath.Join(dir, "program")
		// Not with the context of the first test that needs it.
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/fumehood/fumehood/test/dockertest/"+pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=-buildvcs=false")
		if msg, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", pkg, err, msg)
		}
		return os.ReadFile(out)
	}))
	program, err := build.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// syscallPrograms returns the probe of test/dockertest/syscalls by the architecture that it was built for. On amd64
// there is also one of 32 bits, whose calls have other numbers.
func syscallPrograms(t *testing.T) map[string][]byte {
	t.Helper()
	programs := map[string][]byte{}
	for _, arch := range map[string][]string{"amd64": {"amd64", "386"}, "arm64": {"arm64"}}[runtime.GOARCH] {
		program := built(t, "syscalls", arch)
		file := filepath.Join(t.TempDir(), arch)
		if err := files.WriteProgram(file, program, 0o700); err != nil { //nolint:gosec // it is to be run
			t.Fatal(err)
		}
		if err := exec.CommandContext(t.Context(), file).Run(); err != nil && arch == "386" {
			t.Log("the kernel runs no programs of 32 bits:", err)
			continue
		}
		programs[arch] = program
	}
	if len(programs) == 0 {
		t.Skip("no probe for " + runtime.GOARCH)
	}
	return programs
}

// syscalls runs the probe in a service and returns the result of each call.
func syscalls(t *testing.T, svc fumehood.Service, program []byte) map[string]string {
	t.Helper()
	const path = "/tmp/syscalls"
	if err := svc.WriteFile(t.Context(), path, program, fumehood.WriteOptions{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{path}, Timeout: time.Minute})
	if err != nil || !res.Success() {
		t.Fatalf("%v, %+v: %s", err, res, res.Stderr.Text())
	}
	ends := map[string]string{}
	if err := json.Unmarshal(res.Stdout.Bytes, &ends); err != nil {
		t.Fatal(err)
	}
	return ends
}

// deniedCalls are the calls that the profile denies regardless of a container's capabilities.
var deniedCalls = map[string]string{
	"socket/vsock": "EPERM", "socket/alg": "EPERM", "io_uring_setup": "EPERM", "io_uring_enter": "EPERM", "io_uring_register": "EPERM",
	"fcntl/lease": "EPERM", "fcntl/delegation": "EPERM", "userfaultfd": "EPERM", "add_key": "EPERM", "keyctl": "EPERM", "request_key": "EPERM", "bpf": "EPERM", "perf_event_open": "EPERM",
}

// ofOthers are calls that change the priorities of other processes. They are allowed with CAP_SYS_NICE.
var ofOthers = []string{
	"setpriority/other", "setpriority/other group", "setpriority/user", "setpriority/own user",
	"sched_setscheduler/other", "sched_setscheduler/fork", "sched_setattr/other",
}

// mayCalls are calls that programs need. A libc does not need clone3 if it gets ENOSYS.
var mayCalls = map[string]string{
	"socket/unix": "ok", "socket/inet": "ok", "socket/inet6": "ok", "socket/netlink": "ok", "clone3": "ENOSYS",
	"fcntl/usual": "EBADF", "fcntl/of Linux": "EBADF", "prlimit64/own": "EFAULT", "prlimit64/read": "ESRCH", "prlimit64/other": "EPERM",
	"setpriority/own": "ok", "setpriority/own group": "ok",
	"sched_setscheduler/own": "EINVAL", "sched_setscheduler/usual": "EINVAL", "sched_setattr/own": "EINVAL", // without valid parameters
}

func TestSandbox_Syscalls(t *testing.T) {
	t.Parallel()
	programs := syscallPrograms(t)
	byEngine := newProvider(t, docker.Options{Transport: docker.TransportEngine})
	p := newProvider(t, docker.Options{})
	const services = `
services:
  box: {image: fumehood-test/busybox, command: sleep infinity, x-default: true}
  own: {image: fumehood-test/busybox, command: "sh -c 'while true; do sleep 100; done'", security_opt: ["seccomp=builtin"]}
  admin: {image: fumehood-test/busybox, command: sleep infinity, cap_add: [SYS_ADMIN]}
  nice: {image: fumehood-test/busybox, command: sleep infinity, cap_add: [SYS_NICE]}
`
	compose := project(t, services)
	compose.AllowUnsafe = true
	for _, tt := range []struct {
		name     string
		p        *docker.Provider
		spec     fumehood.Spec
		services []string
	}{
		{"generated", p, fumehood.Spec{Image: busybox}, []string{"default"}},
		{"engine", byEngine, fumehood.Spec{Image: busybox}, []string{"default"}},
		{"kept", p, fumehood.Spec{Image: busybox, Name: "kept-syscalls", Keep: true}, []string{"default"}},
		{"compose", p, fumehood.Spec{Compose: compose}, []string{"box", "own", "admin", "nice"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.p == byEngine || tt.spec.Keep {
				tier.Need(t, tier.CI)
			}
			sb := start(t, tt.p, tt.spec)
			if tt.spec.Keep {
				ctx := context.WithoutCancel(t.Context())
				t.Cleanup(func() {
					if _, err := tt.p.Cleanup(ctx, provider.CleanupOptions{Names: []string{tt.spec.Name}}); err != nil {
						t.Error(err)
					}
				})
			}
			for _, service := range tt.services {
				svc, err := sb.Lookup(service)
				if err != nil {
					t.Fatal(err)
				}
				for arch, program := range programs {
					want := maps.Clone(deniedCalls)
					maps.Copy(want, mayCalls)
					if arch == "386" { // its arguments are in memory, which filters cannot read
						want["socketcall/vsock"], want["socketcall/inet"] = "ENOSYS", "ENOSYS"
					}
					if service == "admin" {
						delete(want, "clone3")
					}
					ends := syscalls(t, svc, program)
					for _, call := range ofOthers {
						if denied := ends[call] == "EPERM"; denied == (service == "nice") {
							t.Errorf("%s: %s", call, ends[call])
						}
					}
					for _, call := range slices.Sorted(maps.Keys(want)) {
						t.Run(strings.Join([]string{service, arch, call}, "/"), func(t *testing.T) {
							if ends[call] != want[call] {
								t.Errorf("got %q, want %q", ends[call], want[call])
							}
						})
					}
				}
			}
		})
	}
}

func TestSpec_seccomp(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := newProvider(t, docker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	conformance.Browsers(t, p, fumehood.Spec{Image: debian})
	if !strings.Contains(log.String(), "seccomp=browsers") {
		t.Errorf("got %s", log.String())
	}
	sb := start(t, p, fumehood.Spec{Seccomp: fumehood.SeccompBrowsers, Compose: project(t, "services: {box: {image: "+debian+", command: sleep infinity}}")})
	if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"unshare", "-U", "true"}}); err != nil || !res.Success() {
		t.Errorf("got %+v, %v", res, err)
	}
	_, err := newProvider(t, docker.Options{Seccomp: "unconfined"}).Start(t.Context(), fumehood.Spec{Image: debian, Seccomp: fumehood.SeccompBrowsers})
	conformance.WantError(t, err, fumehood.ErrConfig)
}

func TestOptions_Seccomp(t *testing.T) {
	t.Parallel()
	programs := syscallPrograms(t)
	const profile = `{"defaultAction": "SCMP_ACT_ALLOW",
		"archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}, {"architecture": "SCMP_ARCH_AARCH64"}],
		"syscalls": [{"names": ["kcmp"], "action": "SCMP_ACT_ERRNO", "errnoRet": 18}]}`
	for _, tt := range []struct {
		name, profile string // the profile's content, or the value of the option
		spec          fumehood.Spec
		kcmp          string // the result of that call
		vsock         string
		log           string
	}{
		{"file", profile, fumehood.Spec{Image: busybox}, "EXDEV", "ok", "another seccomp profile"},
		{"compose", profile, fumehood.Spec{Compose: project(t, "services: {box: {image: fumehood-test/busybox, command: sleep infinity}}")}, "EXDEV", "ok", "another seccomp profile"},
		{"unconfined", "unconfined", fumehood.Spec{Image: busybox}, "EINVAL", "ok", "not filtered"},
		{"default", "", fumehood.Spec{Image: busybox}, "EPERM", "EPERM", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			option := tt.profile
			if strings.HasPrefix(option, "{") {
				option = filepath.Join(t.TempDir(), "profile.json")
				if err := os.WriteFile(option, []byte(tt.profile), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			p := newProvider(t, docker.Options{Seccomp: option, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			sb := start(t, p, tt.spec)
			for arch, program := range programs {
				ends := syscalls(t, sb, program)
				if tt.vsock == "ok" && ends["socket/vsock"] == "EAFNOSUPPORT" { // the kernel does not support vsock
					ends["socket/vsock"] = "ok"
				}
				if ends["kcmp"] != tt.kcmp || ends["socket/vsock"] != tt.vsock {
					t.Errorf("%s: kcmp %q, vsock %q", arch, ends["kcmp"], ends["socket/vsock"])
				}
			}
			if n := strings.Count(log.String(), "seccomp="); tt.log != "" && (n != 1 || !strings.Contains(log.String(), tt.log)) || tt.log == "" && n != 0 {
				t.Errorf("the log says %q", log.String())
			}
		})
	}
}

// A service's own profile is either rejected or used.
func TestCompose_Seccomp(t *testing.T) {
	t.Parallel()
	programs := syscallPrograms(t)
	compose := project(t, "services: {box: {image: fumehood-test/busybox, command: sleep infinity, security_opt: ['seccomp=unconfined']}}")
	p := newProvider(t, docker.Options{})
	if _, err := p.Start(t.Context(), fumehood.Spec{Compose: compose}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
	compose.AllowUnsafe = true
	sb := start(t, p, fumehood.Spec{Compose: compose})
	for arch, program := range programs {
		if got := syscalls(t, sb, program)["kcmp"]; got != "EINVAL" {
			t.Errorf("%s: kcmp %q", arch, got)
		}
	}
}

func TestNew_Seccomp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, file + ".missing"} {
		_, err := docker.New(t.Context(), docker.Options{Seccomp: name})
		var e *fumehood.Error
		if !errors.As(err, &e) || !errors.Is(err, fumehood.ErrConfig) || e.Path != name {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
