package session

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// shells returns the shells of this machine that run scripts here. Shells in sandboxes are covered by the Docker
// tests.
func shells(t *testing.T) (all [][]string) {
	t.Helper()
	for _, s := range [][]string{{"sh", "-c"}, {"bash", "-c"}, {"dash", "-c"}, {"busybox", "sh", "-c"}} {
		if _, err := exec.LookPath(s[0]); err == nil {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		t.Fatal("no shell found")
	}
	return all
}

func TestScript(t *testing.T) {
	const marker = "it's|"
	for _, c := range []struct {
		name           string
		setup          []string
		failFast       bool
		command, stdin string
		out, err       string
		code           int
	}{
		{name: "nothing", command: "echo hi", out: "|hi\n", err: "|"},
		{name: "no command", setup: []string{"echo hi"}, out: "hi\n|", err: "|"},
		{name: "directory, variables, functions", setup: []string{"cd /", "export A=1; B=2", "f() { echo f; }"}, command: `pwd; echo $A$B; f; sh -c 'echo "$A$B"'`, out: "|/\n12\nf\n1\n", err: "|"},
		{name: "input is the command's", setup: []string{"cat", "read -r x"}, command: "cat", stdin: "in\n", out: "|in\n", err: "|"},
		{name: "a failing entry", setup: []string{"false", "echo next"}, command: "echo $?", out: "next\n|0\n", err: "|"},
		{name: "a failing entry, fast", setup: []string{"echo one", "(exit 7)", "echo next"}, failFast: true, command: "echo never", out: "one\n", code: 7},
		{name: "an entry that exits", setup: []string{"echo bye >&2; exit 3"}, command: "echo never", err: "bye\n", code: 3},
		{name: "several lines and a comment", setup: []string{"if true\nthen echo yes\nfi", "echo a # and a comment", "cat <<E\nhere\nE"}, command: "echo done", out: "yes\na\nhere\n|done\n", err: "|"},
		{name: "the command's code", command: "echo x; exit 9", out: "|x\n", err: "|", code: 9},
		{name: "the last command's code", command: "true\nfalse", out: "|", err: "|", code: 1},
	} {
		for _, shell := range shells(t) {
			t.Run(c.name+" in "+shell[0], func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), shell[0], append(shell[1:], script(c.setup, c.failFast, marker, c.command))...)
				var out, errs bytes.Buffer
				cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), &out, &errs
				_ = cmd.Run() // the exit code is checked below
				want := func(s string) string { return strings.ReplaceAll(s, "|", marker) }
				if out.String() != want(c.out) || errs.String() != want(c.err) || cmd.ProcessState.ExitCode() != c.code {
					t.Errorf("got %q, %q, code %d", &out, &errs, cmd.ProcessState.ExitCode())
				}
			})
		}
	}
}
