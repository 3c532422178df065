package cli

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func TestRun_terminal(t *testing.T) {
	t.Parallel()
	first, dir := program(t)
	run := func(term string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "fumehood", append([]string{"--provider", "local", "run"}, args...)...)
		cmd.Env, cmd.Dir = append(first.Env, "TERM="+term), dir
		return cmd
	}
	const show = `test -t 0 && test -t 1 && test -t 2 && echo "its terminal is a $TERM"; exit 3`
	for _, c := range []struct {
		term string
		args []string
		want string
	}{
		{"screen-256color", []string{"-it"}, "screen-256color"},
		{"dumb", []string{"-i", "-t"}, "dumb"},
		{"", []string{"-t"}, "xterm"},
		{"xterm-of-mine", []string{"--tty", "--interactive"}, "xterm"},
		{"$(id)\x1b[2J", []string{"-it"}, "xterm"},
		{"screen", []string{"-it", "-e", "TERM=vt100"}, "vt100"},
	} {
		cmd := run(c.term, append(c.args, "--", "sh", "-c", show)...)
		if got := onTerminal(t, cmd); !strings.Contains(got, "its terminal is a "+c.want+"\r") || cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%q under TERM=%q: exit code %d, %q", c.args, c.term, cmd.ProcessState.ExitCode(), got)
		}
	}

	// Without a terminal of its own, run passes standard input on to the command's.
	cmd := run("", "-t", "--", "cat")
	cmd.Stdin = strings.NewReader("typed\n")
	if got, err := cmd.Output(); err != nil || !strings.HasSuffix(string(got), "typed\r\n") {
		t.Errorf("got %q, %v", got, err)
	}
	cmd = run("", "-i", "--", "cat")
	cmd.Stdin = strings.NewReader("typed\n")
	if got, err := cmd.Output(); err != nil || string(got) != "typed\n" {
		t.Errorf("got %q, %v", got, err)
	}
	cmd = run("", "-t", "--json", "--", "true")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(stderr.String(), "--json cannot be combined with --tty") {
		t.Errorf("with --json: %v, %s", err, &stderr)
	}
}
