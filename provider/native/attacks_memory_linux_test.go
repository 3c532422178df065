//go:build amd64 || arm64

package native_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
)

// Root in a sandbox cannot choose the guest as what the kernel kills first.
func TestSandbox_guestProcess(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, User: "root"})
	for _, file := range []string{"oom_score_adj", "coredump_filter", "task/1/oom_score_adj"} {
		if got := run(t, sb, "echo 1 2>&1 >/proc/1/"+file+" || true"); !strings.Contains(got, "Read-only file system") {
			t.Errorf("%s: %q", file, got)
		}
	}
	if got := run(t, sb, "echo 1 >/proc/self/oom_score_adj && cat /proc/1/cgroup >/dev/null && echo done"); got != "done" {
		t.Errorf("%q", got)
	}
}

// sacrifice prints something, and after a line of input it raises the score of the guest by the files of its threads, and takes all
// memory.
const sacrifice = `
print("before", flush=True)
input()
for id in range(1, 200):
    try:
        if "\nTgid:\t1\n" in open("/proc/%d/status" % id).read():
            open("/proc/%d/oom_score_adj" % id, "w").write("1000")
    except OSError: pass
all = []
while True: all.append(bytearray(1 << 20))
`

// A program that has the guest killed for memory fails by itself, and what it had written is kept.
func TestExec_guestSacrificed(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian, User: "root", Limits: fumehood.Limits{Memory: 64 << 20}})
	p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", sacrifice}, StdinPipe: true, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range p.Follow(t.Context(), fumehood.Stdout, 0) { // its output is here
		if err == nil {
			_, err = p.Write([]byte("\n"))
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	res, err := p.Wait(t.Context())
	if err != nil || res.Success() || !strings.HasPrefix(res.Stdout.Text(), "before\n") {
		t.Errorf("%+v, %v", res, err)
	}
}

// queues leaves 240 MiB in sockets of UDP, if the kernel lets it. With version 1 of control groups it prints what the kernel has kept for
// them at most, in bytes.
const queues = `
import socket
kept = []
for i in range(1000):
    r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    r.bind(("127.0.0.1", 0))
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(r.getsockname())
    for j in range(4):
        try: s.send(bytes(60000))
        except OSError: break
    s.close()
    kept.append(r)
try: print(open("/sys/fs/cgroup/memory/memory.kmem.tcp.max_usage_in_bytes").read().strip())
except FileNotFoundError: print(-1)
`

// What waits in sockets is part of a sandbox's memory, or limited besides.
func TestSandbox_socketMemory(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian, Limits: fumehood.Limits{Memory: 64 << 20}})
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", queues}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := strconv.Atoi(strings.TrimSpace(res.Stdout.Text()))
	if cgroups.IsCgroup2UnifiedMode() {
		if res.Success() {
			t.Errorf("%+v", res)
		}
	} else if err != nil || kept <= 0 || kept > 20<<20 {
		t.Errorf("%d, %v: %+v", kept, err, res)
	}
}

// inFlight sends descriptors of its user that nobody receives until the kernel refuses more, and keeps them until it is killed.
const inFlight = `
import errno, socket, sys
kept = []
while True:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair[0].setblocking(False)
    kept.append(pair)
    try:
        while True: socket.send_fds(pair[0], [b"x"], [0] * 253)
    except BlockingIOError: pass
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
        break
input()
`

// The kernel counts descriptors that wait in sockets for each user of the host. A sandbox that uses up what a user may have does not
// keep that user's commands in others from starting.
func TestExec_descriptorsInFlight(t *testing.T) {
	t.Parallel()
	const user = "54321"
	p := newProvider(t, native.Options{})
	one, two := start(t, p, fumehood.Spec{Image: debian}), start(t, p, fumehood.Spec{Image: debian})
	attacker, err := one.As(user).Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", inFlight}, StdinPipe: true, Timeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for chunk, err := range attacker.Follow(t.Context(), fumehood.Stdout, 0) {
		if err != nil || string(chunk.Data) != "ETOOMANYREFS\n" {
			t.Fatalf("%q, %v", chunk.Data, err)
		}
		break
	}
	for range 3 {
		res, err := two.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "cat; echo fine; echo bad >&2; exit 3"}, Stdin: strings.NewReader("in ")})
		if err != nil || res.ExitCode != 3 || res.Stdout.Text() != "in fine\n" || res.Stderr.Text() != "bad\n" {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if err := attacker.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if res, err := one.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || !res.Success() {
		t.Errorf("%+v, %v", res, err)
	}
}
