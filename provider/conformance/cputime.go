package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

// CPUTime checks the limit of the processor time of a command and all its descendants. The sandbox counts processor time, and has
// python3 and sh. It has no program of its own.
func CPUTime(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	const (
		limit = time.Second
		// burn uses the processor for some seconds. tell starts a child that does so, and goes on after it has told its parent.
		burns = "import os, signal, sys, threading, time\ndef burn(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n" +
			"def tell(s):\n    r, w = os.pipe()\n    pid = os.fork()\n    if pid == 0:\n        burn(s)\n        os.write(w, b'x')\n        burn(60)\n    os.read(r, 1)\n    return pid\n"
	)
	python := func(lines ...string) []string { return []string{"python3", "-c", burns + strings.Join(lines, "\n")} }
	// Children of which each uses less than the limit.
	fork := func(n, s string, then ...string) []string {
		return python(append([]string{"for i in range(" + n + "):", "    if os.fork() == 0:", "        burn(" + s + ")", "        os._exit(0)"}, then...)...)
	}
	loop := []string{"sh", "-c", "while :; do :; done"}
	for _, c := range []struct {
		name string
		cmd  fumehood.Cmd
		want fumehood.Outcome
	}{
		{"one process", fumehood.Cmd{Args: loop}, fumehood.CPUTimeExceeded},
		{"ignores SIGXCPU and SIGTERM", fumehood.Cmd{Args: python("signal.signal(24, signal.SIG_IGN)", "signal.signal(15, signal.SIG_IGN)", "burn(60)"), Grace: fumehood.NoGrace}, fumehood.CPUTimeExceeded},
		{"children at once", fumehood.Cmd{Args: fork("4", "0.9", "for i in range(4): os.wait()")}, fumehood.CPUTimeExceeded},
		{"children one by one", fumehood.Cmd{Args: fork("4", "0.5", "    os.wait()")}, fumehood.CPUTimeExceeded},
		{"killed children", fumehood.Cmd{Args: python("for i in range(4):", "    pid = tell(0.4)", "    os.kill(pid, 9)", "    os.wait()")}, fumehood.CPUTimeExceeded},
		{"zombies", fumehood.Cmd{Args: fork("4", "0.5", "time.sleep(60)")}, fumehood.CPUTimeExceeded},
		{"orphan", fumehood.Cmd{Args: python("if os.fork() == 0:", "    os.setsid()", "    if os.fork() == 0: burn(60)", "    os._exit(0)", "os.wait()", "time.sleep(60)")}, fumehood.CPUTimeExceeded},
		{"children of a shell", fumehood.Cmd{Args: []string{"sh", "-c", "(while :; do :; done) & (while :; do :; done) & wait"}}, fumehood.CPUTimeExceeded},
		{"two threads", fumehood.Cmd{Args: python("t = threading.Thread(target=burn, args=(0.7,))", "t.start()", "burn(60)")}, fumehood.CPUTimeExceeded},
		{"ends before it is noticed", fumehood.Cmd{Args: python("burn(0.3)"), CPUTime: 250 * time.Millisecond}, fumehood.CPUTimeExceeded},
		{"children that the kernel reaps", fumehood.Cmd{Args: python("signal.signal(17, signal.SIG_IGN)", "for i in range(40):", "    if os.fork() == 0:", "        burn(0.1)", "        os._exit(0)", "    time.sleep(0.15)")}, fumehood.CPUTimeExceeded},
		{"left behind", fumehood.Cmd{Args: python("tell(1.2)"), KillRest: true}, fumehood.CPUTimeExceeded},
		{"below it", fumehood.Cmd{Args: python("burn(0.3)", "sys.exit(3)")}, fumehood.Exited},
		{"waits", fumehood.Cmd{Args: []string{"sleep", "1.5"}}, fumehood.Exited},
		{"time limit first", fumehood.Cmd{Args: []string{"sleep", "60"}, Timeout: time.Second}, fumehood.TimedOut},
		{"both", fumehood.Cmd{Args: loop, CPUTime: 200 * time.Millisecond, Timeout: 20 * time.Second}, fumehood.CPUTimeExceeded},
	} {
		cmd := c.cmd
		if cmd.CPUTime == 0 {
			cmd.CPUTime = limit
		}
		if cmd.Timeout == 0 {
			cmd.Timeout = time.Minute
		}
		r, err := sb.Exec(t.Context(), cmd)
		if err != nil || r.Outcome != c.want || r.Leaked {
			t.Errorf("%s: got %+v, %v", c.name, r, err)
			continue
		}
		over := c.want == fumehood.CPUTimeExceeded
		if over != (r.ExitCode == -1) && c.want != fumehood.TimedOut || over != strings.Contains(r.Reason, "of processor time") || r.Signal != 0 {
			t.Errorf("%s: got %+v", c.name, r)
		}
		if used := r.Usage.User + r.Usage.System; over && c.name != "children that the kernel reaps" && (used <= cmd.CPUTime || used > cmd.CPUTime+3*time.Second) {
			t.Errorf("%s: used %v with a limit of %v", c.name, used, cmd.CPUTime)
		}
	}
	// A neighbor's processor time is not the command's.
	busy, err := sb.Start(t.Context(), fumehood.Cmd{Args: loop})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"sleep", "3"}, loop} {
		want := fumehood.Exited
		if args[0] != "sleep" {
			want = fumehood.CPUTimeExceeded
		}
		if r, err := sb.Exec(t.Context(), fumehood.Cmd{Args: args, CPUTime: limit, Timeout: time.Minute}); err != nil || r.Outcome != want {
			t.Errorf("%v beside another command: got %+v, %v", args, r, err)
		}
	}
	if err := busy.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// NoCPUTime checks that a command with a limit of processor time is refused.
func NoCPUTime(t *testing.T, svc fumehood.Service) {
	t.Helper()
	if r, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}, CPUTime: time.Minute}); !errors.Is(err, fumehood.ErrUnsupported) {
		t.Errorf("got %+v, %v, want ErrUnsupported", r, err)
	}
}
