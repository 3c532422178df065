package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

// Memory checks the outcomes of commands of which a child ran out of memory. The sandbox has a memory limit of 128 MiB,
// python3 and sh.
func Memory(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	const eats = "b = bytearray(400 << 20)"
	// A direct child of the program, which survives: on its death, the program does the rest.
	worker := func(then string) fumehood.Cmd {
		return fumehood.Cmd{Args: []string{"python3", "-c", "import os, sys, time\nif os.fork() == 0:\n    " + eats + "\n    os._exit(0)\ncode = os.wait()[1] != 0\n" + then}, Timeout: time.Minute}
	}
	shell := fumehood.Cmd{Args: []string{"sh", "-c", "python3 -c '" + eats + "'; exit $?"}, Timeout: time.Minute}
	waits := worker("time.sleep(60)")
	waits.Timeout = 5 * time.Second
	for _, c := range []struct {
		name   string
		cmd    fumehood.Cmd
		engine bool
		want   fumehood.Outcome
		code   int
		reason string
	}{
		{"shell", shell, false, fumehood.OutOfMemory, 137, "exited with code 137"},
		{"worker", worker("sys.exit(code)"), false, fumehood.OutOfMemory, 1, "exited with code 1"},
		{"timeout", waits, false, fumehood.OutOfMemory, -1, "killed at its timeout of 5s"},
		{"handled", worker("sys.exit(0)"), false, fumehood.Exited, 0, ""},
		{"engine", worker("sys.exit(code)"), true, fumehood.OutOfMemory, 1, "exited with code 1"},
	} {
		cmd := c.cmd
		cmd.ViaEngine = c.engine
		r, err := sb.Exec(t.Context(), cmd)
		if err != nil || r.Outcome != c.want || r.ExitCode != c.code || r.Usage.OOMKills == 0 || !strings.Contains(r.Reason, c.reason) || (r.Reason == "") != (c.reason == "") {
			t.Errorf("%s: got %+v, %v", c.name, r, err)
		}
	}
	p, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := sb.Exec(t.Context(), shell)
	if err != nil || r.Outcome != fumehood.Exited || r.ExitCode != 137 || !strings.Contains(r.Reason, "while other programs ran") {
		t.Errorf("beside another command: got %+v, %v", r, err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if r, err := sb.Exec(t.Context(), shell); err != nil || r.Outcome != fumehood.OutOfMemory {
		t.Errorf("after it: got %+v, %v", r, err)
	}
}

// MemoryOfProgram checks the outcome of a command that fails while a process of the service's own program runs out of memory. The
// service has a memory limit of 128 MiB, python3, sh, and the program ProgramOutOfMemory.
func MemoryOfProgram(t *testing.T, sb fumehood.Sandbox) {
	t.Helper()
	r, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "touch /tmp/eat; until test -e /tmp/killed; do sleep 0.05; done; exit 7"}, Timeout: time.Minute})
	if err != nil || r.Outcome != fumehood.Exited || r.ExitCode != 7 || r.Usage.OOMKills == 0 || !strings.Contains(r.Reason, "while other programs ran") {
		t.Errorf("got %+v, %v", r, err)
	}
}

// ProgramOutOfMemory is a program in Python. When /tmp/eat exists, it starts a child that the kernel kills for memory, makes
// /tmp/killed, and goes on.
const ProgramOutOfMemory = "import os, time\n" +
	"while not os.path.exists('/tmp/eat'): time.sleep(0.05)\n" +
	"if os.fork() == 0:\n    b = bytearray(400 << 20)\n    os._exit(0)\n" +
	"os.wait()\nopen('/tmp/killed', 'x').close()\ntime.sleep(1000)"
