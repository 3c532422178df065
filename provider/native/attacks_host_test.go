//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
)

// host has what a sandbox must not reach: a file, sockets, queues, descriptors, a process.
type host struct {
	mounts []fumehood.Mount
	facts  map[string]any // for the attempts
	rw     string         // the host's folder of /rw
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir, ro, rw := t.TempDir(), t.TempDir(), t.TempDir()
	if os.Getenv(unprivileged) != "" {
		rw = filepath.Join(filepath.Dir(os.Getenv("HOME")), "shared") // it has of-other
	} else {
		ofOther(t, rw)
	}
	for _, f := range []string{dir + "/marker", dir + "/leaked", ro + "/file"} {
		if err := os.WriteFile(f, []byte("of the host"), 0o666); err != nil { //nolint:gosec // its mode does not protect it
			t.Fatal(err)
		}
	}
	for _, d := range []string{ro, rw} {
		if err := os.Chmod(d, 0o777); err != nil { //nolint:gosec // its mode does not protect it
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(rw+"/later", 0o777); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	h := &host{
		mounts: []fumehood.Mount{{Host: ro, Container: "/ro"}, {Host: rw, Container: "/rw", Writable: true}}, rw: rw,
		facts: map[string]any{
			"marker": dir + "/marker", "leaked": dir + "/leaked", "pid": os.Getpid(), "socket": dir + "/socket",
			"abstract": fmt.Sprintf("fumehood-test-%d", os.Getpid()), "key": os.Getpid(), "queue": fmt.Sprintf("fumehood-test-%d", os.Getpid()),
			"caps": capabilitySet, "ids": 70_000, // that no sandbox's user namespace has
		},
	}
	t.Setenv("FUMEHOOD_TEST_SECRET", "secret")
	h.leak(t)
	h.favor(t)
	h.hurry(t)
	h.sockets(t)
	h.queues(t)
	var disk [2]uint32
	devices, _ := filepath.Glob("/sys/block/*/dev")
	for _, d := range devices {
		text, _ := os.ReadFile(d)
		if _, err := fmt.Sscanf(string(text), "%d:%d", &disk[0], &disk[1]); err == nil {
			break
		}
	}
	h.facts["disk"] = disk
	return h
}

// ofOther makes a file of a user that no sandbox has.
func ofOther(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(dir+"/of-other", nil, 0o600), os.Chown(dir+"/of-other", 70_000, 70_000)); err != nil {
		t.Fatal(err)
	}
}

// capabilitySet are CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID and NET_BIND_SERVICE.
const capabilitySet = 1<<0 | 1<<1 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<10

// leak opens files that every process started by this one inherits.
func (h *host) leak(t *testing.T) {
	t.Helper()
	for _, path := range []string{h.facts["leaked"].(string), "/", "/proc"} {
		fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(fd) })
	}
}

// favor protects this process from the out-of-memory killer, if it may.
func (h *host) favor(t *testing.T) {
	t.Helper()
	const file = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte("-500"), 0)
	}
	if errors.Is(err, fs.ErrPermission) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, before, 0); err != nil {
			t.Error(err)
		}
	})
}

// hurry gives all threads of this process a higher priority than commands have.
func (h *host) hurry(t *testing.T) {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(filepath.Base(thread))
		if err != nil {
			t.Fatal(err)
		}
		before, err := unix.Getpriority(unix.PRIO_PROCESS, id) // 20 minus the nice value
		if err != nil {
			continue // has ended
		}
		err = unix.Setpriority(unix.PRIO_PROCESS, id, -5)
		if errors.Is(err, fs.ErrPermission) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, 20-before) // may have ended
		})
	}
}

// descriptors checks the open files of all processes in the control group of a sandbox, the first one and those that
// the host started in it. Nothing of the host may be among them.
func (h *host) descriptors(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	var devices []uint64 // of the host's file systems
	for _, path := range []string{"/", "/proc", h.facts["leaked"].(string)} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		devices = append(devices, st.Dev)
	}
	checked := 0
	for _, pid := range processesOf(t, sb) {
		fds, _ := filepath.Glob("/proc/" + pid + "/fd/*")
		for _, fd := range fds {
			var st unix.Stat_t
			if unix.Stat(fd, &st) != nil {
				continue // closed meanwhile
			}
			checked++
			if slices.Contains(devices, st.Dev) {
				to, _ := os.Readlink(fd)
				t.Errorf("process %s has %s", pid, to)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d descriptors were checked", checked)
	}
}

// processesOf returns the processes in the control group of a sandbox, without root in its PID namespace.
func processesOf(t *testing.T, sb fumehood.Sandbox) (all []string) {
	t.Helper()
	if os.Getenv(unprivileged) != "" {
		namespace := run(t, sb, "readlink /proc/self/ns/pid")
		spaces, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
		for _, file := range spaces {
			if to, _ := os.Readlink(file); to == namespace {
				all = append(all, strings.Split(file, "/")[2])
			}
		}
		return all
	}
	files, err := filepath.Glob("/sys/fs/cgroup/pids/fumehood/" + sb.Info().Name + "-????????/cgroup.procs")
	if err != nil || len(files) != 1 {
		t.Fatalf("control groups %v, %v", files, err)
	}
	pids, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(pids))
}

// sockets listens where the attempts connect, and checks that this process can.
func (h *host) sockets(t *testing.T) {
	t.Helper()
	for _, at := range [][2]string{{"unix", "@" + h.facts["abstract"].(string)}, {"unix", h.facts["socket"].(string)}, {"tcp", "127.0.0.1:0"}} {
		l, err := net.Listen(at[0], at[1]) //nolint:noctx // it does not wait
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		c, err := net.Dial(at[0], l.Addr().String()) //nolint:noctx // it is answered at once
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			h.facts["port"] = tcp.Port
		}
	}
}

// queues makes shared memory and queues, which exist in an IPC namespace.
func (h *host) queues(t *testing.T) {
	t.Helper()
	key := h.facts["key"].(int)
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	msg, _, errno := unix.Syscall(unix.SYS_MSGGET, uintptr(key), unix.IPC_CREAT|0o666, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_MSGCTL, msg, unix.IPC_RMID, 0) })
	name, err := unix.BytePtrFromString(h.facts["queue"].(string))
	if err != nil {
		t.Fatal(err)
	}
	q, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o666, 0, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() {
		_ = unix.Close(int(q))
		_, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
	})
}

// afterwards makes a mount after the sandbox has started.
func (h *host) afterwards(t *testing.T) {
	t.Helper()
	at := h.rw + "/later"
	if os.Getenv(unprivileged) != "" { // it may not mount
		return
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(at+"/of-the-host", nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
