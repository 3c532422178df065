package guest

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/test/tier"
)

// A thread that the runtime starts while a worker is in the group for programs leaves it with the worker.
func TestWorker_moveBack(t *testing.T) {
	const root = "/sys/fs/cgroup/pids"
	own, err := os.MkdirTemp(root, "fumehood-test-")
	if err != nil {
		tier.Missing(t, tier.CI, err) // no root, or no control groups of version 1
	}
	code := filepath.Join(own, "code")
	if err := os.Mkdir(code, 0o755); err != nil {
		t.Fatal(err)
	}
	home, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	before := root
	for line := range strings.Lines(string(home)) {
		if _, path, ok := strings.Cut(strings.TrimSpace(line), ":pids:"); ok {
			before = filepath.Join(root, path)
		}
	}
	pid := []byte(strconv.Itoa(os.Getpid()))
	t.Cleanup(func() {
		if err := os.WriteFile(before+"/cgroup.procs", pid, 0); err != nil {
			t.Error(err)
		}
		for _, dir := range []string{code, own} {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		}
	})
	if err := os.WriteFile(own+"/cgroup.procs", pid, 0); err != nil {
		t.Fatal(err)
	}
	w := &worker{}
	for _, dir := range []string{code, own} { // in the order of their directions
		f, err := os.OpenFile(dir+"/tasks", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w.tasks = append(w.tasks, int(f.Fd()))
	}
	if w.list, err = unix.Open(threadsFolder, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(w.list)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	threads := w.threads()
	if err := w.move(toCode); err != nil {
		t.Fatal(err)
	}
	// Threads that are there, as those that this one would start; the runtime starts none from a locked one.
	there, leave := make(chan error), make(chan struct{})
	for range int(threads) {
		go func() {
			runtime.LockOSThread()
			there <- w.move(toCode)
			<-leave
		}()
		if err := <-there; err != nil {
			t.Fatal(err)
		}
	}
	defer close(leave)
	if err := w.moveBack(threads); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadFile(code + "/tasks"); err != nil || len(left) > 0 {
		t.Errorf("threads %q stay in the group for programs, %v", strings.Fields(string(left)), err)
	}
	if all, err := os.ReadFile(own + "/tasks"); err != nil || !slices.Contains(strings.Fields(string(all)), strconv.Itoa(unix.Gettid())) {
		t.Errorf("this thread is not in its group: %q, %v", all, err)
	}
}
