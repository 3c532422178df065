package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// onTerminal runs a program with a new terminal as its standard streams, and returns everything written to the
// terminal.
func onTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	err = cmd.Start()
	_ = slave.Close() // the program's copy stays open
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := io.Copy(&got, master); err != nil && !errors.Is(err, unix.EIO) { // EIO: the other end is closed
		t.Error(err)
	}
	_ = cmd.Wait() // exit codes don't matter here
	return got.String()
}

// TestTerminal_escapes reads logs and copies files of a sandbox whose output and file names have escape sequences.
func TestTerminal_escapes(t *testing.T) {
	t.Parallel()
	needDocker(t)
	first, dir := program(t)
	project := `services:
  box:
    image: fumehood-test/busybox
    command: ["sh", "-c", "printf '\\033]0;owned\\007\\033[2Jlog \\302\\233 \\342\\200\\256end\\r\\n'; sleep 1000"]
`
	if err := os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte(project), 0o600); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(os.Mkdir(filepath.Join(dir, "before"), 0o700), os.Mkdir(filepath.Join(dir, "after"), 0o700),
		os.WriteFile(filepath.Join(dir, "after", "a"), []byte("red\x1b[31m\a\r\n"), 0o600), os.Symlink("\x1b[31m", filepath.Join(dir, "after", "l")))
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "fumehood", args...)
		cmd.Env, cmd.Dir = first.Env, dir
		return cmd
	}
	name := "hm-terminal-" + strings.ToLower(filepath.Base(filepath.Dir(dir)))
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, name)
	if out, err := run("up", "-f", "compose.yaml", "--name", name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer func() {
		if out, err := run("down", name).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}()
	hostile := `d=/t/$(printf '\033]0;owned\007\033[2Jname'); mkdir -p "$d"; ln -s ../../../../etc "$d/$(printf 'l\033[2J')"`
	if out, err := run("exec", name, "--", "sh", "-c", hostile).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		args  []string
		shows string
	}{
		{[]string{"logs", name}, `\x1b]0;owned\x07\x1b[2Jlog \u009b \u202eend\x0d`},
		{[]string{"cp", name + ":/t", "copied"}, `points out of the copied tree`},
		{[]string{"cp", name + ":/t/\x1b[2Jmissing", "copied"}, `missing`},
		{[]string{"exec", name, "--", "/no\x1b[2Jprogram"}, `program`},
		{[]string{"logs", name + "\x1b[2J"}, `fumehood: `},
		{[]string{"snapshot", "diff", "before", "after"}, `+red\x1b[31m\x07\x0d`},
	} {
		showsNoOrders(t, run(c.args...), c.shows)
	}
}

// showsNoOrders runs a program on a terminal. The output must contain the text and no control characters.
func showsNoOrders(t *testing.T, cmd *exec.Cmd, shows string) {
	t.Helper()
	got := onTerminal(t, cmd)
	if !strings.Contains(got, shows) {
		t.Errorf("%q shows %q, which does not contain %q", cmd.Args, got, shows)
	}
	if text := strings.ReplaceAll(got, "\r\n", "\n"); strings.ContainsAny(text, "\x1b\x07\r\u009b\u202e") { // the terminal itself turns \n into \r\n
		t.Errorf("%q shows control characters: %q", cmd.Args, got)
	}
}

// TestTerminal_data prints machine-readable output on a terminal, from a project and a run whose texts have control
// characters.
func TestTerminal_data(t *testing.T) {
	t.Parallel()
	first, dir := program(t)
	const order = "a\u009b31m\u202eb"
	project := "services:\n  box:\n    image: i\n    environment: {A: \"" + order + "\"}\n"
	result := `{"sample":"` + order + `","epoch":1,"tries":1,"score":{"value":0,"reasons":["` + order + `"]},"started":"2026-01-02T03:04:05Z"}` + "\n"
	for name, text := range map[string]string{
		"compose.yaml": project, "run/run.json": `{"task":"t","attempts":1}`, "run/results.jsonl": result,
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"config", "config --json", "runs export ./run --format csv", "runs export ./run --format junit", "runs export ./run --format json",
		"runs show ./run", "runs show ./run --sample " + order, "runs show ./run --json --sample " + order,
	} {
		cmd := exec.CommandContext(t.Context(), "fumehood", strings.Fields(args)...)
		cmd.Env, cmd.Dir = first.Env, dir
		shows := `a\u009b31m\u202eb`
		if args == "config" {
			shows = `a\x9B31m\u202eb` // the escape of YAML
		}
		showsNoOrders(t, cmd, shows)
	}
}

// TestEval_terminal evaluates on a terminal. Only one that can redraw a line shows the counts in one.
func TestEval_terminal(t *testing.T) {
	t.Parallel()
	const task = "name: here\nenvironment: {file: env.yaml}\nsamples: [{id: one, command: [sleep, \"1\"]}]\n"
	for term, redraws := range map[string]bool{"xterm": true, "dumb": false} {
		cmd, dir := program(t, "--provider", "local", "eval", "task.yaml")
		cmd.Env = append(cmd.Env, "TERM="+term)
		for name, text := range map[string]string{"task.yaml": task, "env.yaml": "type: local\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := onTerminal(t, cmd)
		if !strings.Contains(got, "1 passed") || strings.Contains(got, "\x1b[K") != redraws || !redraws && strings.Contains(got, "\x1b") {
			t.Errorf("%s: %q", term, got)
		}
	}
}
