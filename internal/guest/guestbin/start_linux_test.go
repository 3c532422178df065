package guestbin_test

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider/conformance"
)

// started is a guest in its own process that answers.
type started struct {
	*host.Guest
	t   testing.TB
	cmd *exec.Cmd
}

// ready starts a guest with the arguments in front of its path, and waits until it answers.
func ready(t *testing.T, before ...string) started {
	t.Helper()
	s := launched(t, slices.Concat(before, []string{guestProgram(t)}))
	t.Cleanup(s.end)
	return s
}

// launched starts a guest by a command line, and waits until it answers.
func launched(t testing.TB, args []string) started {
	t.Helper()
	cmd, conn := serving(t, args, "--no-cgroup")
	s := started{host.New(conn), t, cmd}
	if err := s.Ready(t.Context()); err != nil {
		s.end()
		t.Fatal(err)
	}
	return s
}

// end ends the guest. It may be called again.
func (s started) end() {
	s.Close()
	_ = s.cmd.Wait() // the tests end some guests themselves
}

// run runs a shell command and returns its output.
func (s started) run(script string) string {
	s.t.Helper()
	return strings.TrimSpace(s.exec("sh", "-c", script))
}

// exec runs a command and returns its output.
func (s started) exec(args ...string) string {
	s.t.Helper()
	var out bytes.Buffer
	p, err := s.Exec(s.t.Context(), fumehood.Cmd{Args: args}, false, func(_ fumehood.Stream, b []byte) { out.Write(b) })
	if err != nil {
		s.t.Fatal(err)
	}
	if exit, err := p.Wait(s.t.Context()); err != nil || exit.Outcome != fumehood.Exited || exit.Code != 0 {
		s.t.Fatalf("%q: got %+v, %v", args, exit, err)
	}
	return out.String()
}

// workers returns the process ids of the guest's workers.
func (s started) workers() []int {
	s.t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	var pids []int
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				s.t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// only returns the process id of the guest's only worker.
func (s started) only() int {
	s.t.Helper()
	pids := s.workers()
	if len(pids) != 1 {
		s.t.Fatalf("workers: %v, want one", pids)
	}
	return pids[0]
}

// awaitHandlers waits until a process ignores SIGTERM, which shows that a worker has started.
func awaitHandlers(t *testing.T, pid int) {
	t.Helper()
	conformance.Eventually(t, "the worker ignores SIGTERM", func() bool {
		ignored, _ := masks(t, pid)
		return ignored&(1<<(unix.SIGTERM-1)) != 0
	})
}

// masks returns the signals that a process ignores and catches.
func masks(t *testing.T, pid int) (ignored, caught uint64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("\nSigIgn:"))
	if _, err := fmt.Sscanf(string(text), "%x\nSigCgt: %x", &ignored, &caught); err != nil {
		t.Fatal(err)
	}
	return ignored, caught
}

// The first command need not wait for the start of a worker.
func TestGuest_workerAhead(t *testing.T) {
	t.Run("takes the first command", func(t *testing.T) {
		s := ready(t)
		want := s.only()
		if got := s.run("echo $PPID"); got != strconv.Itoa(want) {
			t.Errorf("the command's worker is %s, want %d", got, want)
		}
	})
	t.Run("ends with the guest", func(t *testing.T) {
		s := ready(t)
		pid := s.only()
		s.end()
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			t.Error("the worker is alive")
		}
	})
	t.Run("killed", func(t *testing.T) {
		s := ready(t)
		pid := s.only()
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if got := s.run("echo $PPID"); got == strconv.Itoa(pid) {
			t.Error("the killed worker runs a command")
		}
	})
	t.Run("stopped", func(t *testing.T) {
		s := ready(t)
		pid := s.only()
		awaitHandlers(t, pid)
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		conformance.Eventually(t, "the worker stops", func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && bytes.Contains(text, []byte(") T "))
		})
		if got := s.run("echo $PPID"); got == strconv.Itoa(pid) {
			t.Error("the stopped worker runs a command")
		}
	})
	t.Run("limits lowered", func(t *testing.T) {
		s := ready(t)
		pid := s.only()
		awaitHandlers(t, pid)
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 20, Max: 20}, nil); err != nil {
			t.Fatal(err)
		}
		if got := s.run("echo $PPID"); got == strconv.Itoa(pid) {
			t.Error("the worker with other limits runs a command")
		}
	})
	t.Run("few processes allowed", func(t *testing.T) {
		s := ready(t, "sh", "-c", `ulimit -u 500 2>/dev/null || ulimit -p 500; exec "$@"`, "sh")
		if pids := s.workers(); len(pids) > 0 {
			t.Errorf("workers before the first command: %v", pids)
		}
		s.run("true")
	})
}

// atOnce runs a shell command n times at once, and returns the outputs.
func (s started) atOnce(n int, script string) []string {
	s.t.Helper()
	outputs := make([]string, n)
	var all sync.WaitGroup
	for i := range outputs {
		all.Go(func() {
			var out bytes.Buffer
			p, err := s.Exec(s.t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}}, false, func(_ fumehood.Stream, b []byte) { out.Write(b) })
			if err == nil {
				_, err = p.Wait(s.t.Context())
			}
			if err != nil {
				s.t.Error(err)
			}
			outputs[i] = out.String()
		})
	}
	all.Wait()
	return outputs
}

// undisturbed returns the beginning of a command line that gives a program real-time priority, so that other programs of the
// machine do not delay it. It returns nothing where this process may not give it.
func undisturbed() []string {
	first := []string{"chrt", "--fifo", "1"}
	if exec.Command(first[0], append(first[1:], "true")...).Run() != nil {
		return nil
	}
	return first
}

// Commands at once share a few workers if they are short, and have one each if they are long.
func TestGuest_turns(t *testing.T) {
	t.Run("short", func(t *testing.T) {
		const commands, tries = 100, 20
		n := 0
		for range tries { // on a busy machine they are not short
			workers := map[string]bool{}
			for _, parent := range ready(t, undisturbed()...).atOnce(commands, "echo $PPID") {
				workers[parent] = true
			}
			if n = len(workers); n <= commands/2 {
				return
			}
		}
		t.Errorf("%d commands had %d workers", commands, n)
	})
	t.Run("long", func(t *testing.T) {
		commands := 2*runtime.NumCPU() + 8
		file := filepath.Join(t.TempDir(), "running")
		ready(t).atOnce(commands, fmt.Sprintf("echo >> %s; until [ $(wc -l < %s) -ge %d ]; do sleep 0.05; done", file, file, commands))
	})
}

// A host that has gone may no longer read, and writes then fail. The guest must still kill what it started.
func TestGuest_hostGone(t *testing.T) {
	cmd, conn := serving(t, []string{guestProgram(t)}, "--no-cgroup")
	if err := conn.ReadCloser.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the guest ended with %v", err)
	}
}

// A worker survives the signals of its command, which inherits none of that, nor what the guest has inherited.
func TestWorker_signals(t *testing.T) {
	s := ready(t, "sh", "-c", `trap "" HUP INT; exec "$@"`, "sh")
	pid := s.only()
	awaitHandlers(t, pid)
	if _, caught := masks(t, pid); caught&(1<<(unix.SIGCHLD-1)) == 0 {
		t.Error("the worker does not handle SIGCHLD, so the end of an orphan does not interrupt its wait")
	}
	for n := unix.Signal(1); n <= 64; n++ {
		if n != unix.SIGKILL && n != unix.SIGSTOP && (n < 32 || n > 34) {
			_ = unix.Kill(pid, n)
		}
	}
	const handed = 1<<(unix.SIGHUP-1) | 1<<(unix.SIGINT-1) | 1<<(unix.SIGQUIT-1) | 1<<(unix.SIGABRT-1) | 1<<(unix.SIGTERM-1) |
		1<<(unix.SIGPIPE-1) | 1<<(unix.SIGTSTP-1)
	for range 2 {
		got := s.run(`echo $PPID; sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status`)
		worker, ignored, _ := strings.Cut(got, "\n")
		if worker != strconv.Itoa(pid) {
			t.Errorf("the command's worker is %s, want %d", worker, pid)
		}
		if mask, err := strconv.ParseUint(ignored, 16, 64); err != nil || mask&handed != 0 {
			t.Errorf("the command ignores the signals %x, %v", mask&handed, err)
		}
	}
}

// A worker has few threads, however many commands it has run, also if the guest's parent ignores signals. A command does not
// leave it with more.
func TestWorker_threads(t *testing.T) {
	for name, before := range map[string][]string{
		"usual":           nil,
		"signals ignored": {"sh", "-c", `trap "" HUP INT; exec "$@"`, "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			s := ready(t, before...)
			pid := s.only()
			for range 20 {
				s.run("true; (sleep 0.02 &)")
			}
			threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			if err != nil || len(threads) > 4 { // three, or four if the machine was busy when it started
				t.Errorf("the worker has %d threads, %v", len(threads), err)
			}
		})
	}
}

// An orphan is reaped soon after its end, also while the command that left it runs.
func TestWorker_orphan(t *testing.T) {
	s := ready(t)
	s.only()
	const leave = `(sh -c 'echo $$ > f; sleep 0.2' & ) ; until [ -s f ]; do sleep 0.01; done; i=0; ` +
		`while [ -e /proc/$(cat f) ] && [ $i -lt 500 ]; do sleep 0.01; i=$((i+1)); done; [ -e /proc/$(cat f) ] && echo left || echo gone`
	if got := s.run("cd " + t.TempDir() + "; " + leave); got != "gone" {
		t.Errorf("the orphan is %s", got)
	}
}

// The guest and its workers let the kernel wake all their threads late, also those of Go's runtime. A worker's first thread is
// the one that starts commands.
func TestGuest_timerSlack(t *testing.T) {
	s := ready(t)
	own, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		t.Skip(err)
	}
	awaitHandlers(t, s.only())
	for _, pid := range []int{s.cmd.Process.Pid, s.only()} {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			got, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
			if os.IsPermission(err) {
				t.Skip(err)
			}
			want := "2000000\n"
			if pid == s.only() && thread.Name() == strconv.Itoa(pid) {
				want = string(own)
			}
			if err != nil || string(got) != want {
				t.Errorf("thread %s of process %d: %q, %v", thread.Name(), pid, got, err)
			}
		}
	}
	if got := s.run("cat /proc/self/timerslack_ns"); got != strings.TrimSpace(string(own)) {
		t.Errorf("a command has %s, want %s", got, own)
	}
}

// BenchmarkGuest_start measures the time from the start of a guest to its first answer, and to those of its first
// commands, as medians. FUMEHOOD_BENCH_GUEST is the path of another guest to measure.
func BenchmarkGuest_start(b *testing.B) {
	program := cmp.Or(os.Getenv("FUMEHOOD_BENCH_GUEST"), guestProgram(b))
	var answers, firsts, seconds []time.Duration
	for b.Loop() {
		began := time.Now()
		s := launched(b, []string{program})
		answers = append(answers, time.Since(began))
		s.exec("/bin/true")
		firsts = append(firsts, time.Since(began))
		again := time.Now()
		s.exec("/bin/true")
		seconds = append(seconds, time.Since(again))
		s.end()
	}
	for unit, all := range map[string][]time.Duration{"ms-answer": answers, "ms-first": firsts, "ms-second": seconds} {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2].Seconds()*1000, unit)
	}
}
