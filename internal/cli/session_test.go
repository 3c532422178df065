//go:build unix

package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// localSpec writes a spec of type local and a workspace to dir.
func localSpec(t *testing.T, dir string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, "env.yaml"), []byte("{type: local, commands: {command: sh}}\n"), 0o600)
	if err := errors.Join(err, os.Mkdir(filepath.Join(dir, "work"), 0o700)); err != nil {
		t.Fatal(err)
	}
}

// A command is read when the previous one has ended, output arrives while a command runs, and a signal ends the wait
// for the next command.
func TestSessionStream(t *testing.T) {
	t.Parallel()
	cmd, dir := program(t, "--provider", "local", "session", "stream", "env.yaml", "--workspace", "work")
	localSpec(t, dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	send := func(command string) {
		if _, err := io.WriteString(in, command+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	want := func(begin string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, begin) {
			t.Fatalf("got %q, %v; want %s", line, err, begin)
		}
	}
	send(`{"command": "echo one; until test -e go; do sleep 0.01; done; echo two"}`)
	want(`{"phase":"command","stream":"stdout","text":"one\n"}`)
	folders, err := filepath.Glob(filepath.Join(dir, "state", "fumehood", "session", "*", "work"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%q, %v", folders, err)
	}
	if err := os.WriteFile(filepath.Join(folders[0], "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(`{"phase":"command","stream":"stdout","text":"two\n"}`)
	want(`{"result":{"outcome":"exited","exit_code":0,`)
	send(`{"command": "ls"}`)
	want(`{"phase":"command","stream":"stdout","text":"go\n"}`)
	want(`{"result":`)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	want(`{"error":{"class":"canceled",`)
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("got %v", err)
	}
}

func TestSessionRun_sweepsAfterKill(t *testing.T) {
	t.Parallel()
	cmd, dir := program(t, "--provider", "local", "session", "run", "env.yaml", "--workspace", "work", "--command", "exec sleep 600")
	localSpec(t, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	folders := func() []string {
		all, err := filepath.Glob(filepath.Join(dir, "state", "fumehood", "session", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	eventually(t, "the session has a workspace, and its sandbox an owner", func() bool {
		all := folders()
		_, err := os.Stat(filepath.Join(append(all, "none")[0], "work"))
		owners, _ := filepath.Glob(filepath.Join(dir, "state", "fumehood", "local", "[^.]*", "owner")) // not .new-*, which has no name yet
		return len(all) == 1 && err == nil && len(owners) == 1
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if left := folders(); len(left) != 1 {
		t.Fatalf("after the kill: %q", left)
	}
	for _, args := range [][]string{
		{"session", "run", "env.yaml", "--workspace", "work", "--command", "true"},
		{"cleanup"}, // the sandbox of the local provider
	} {
		next := exec.CommandContext(t.Context(), "fumehood", append([]string{"--provider", "local"}, args...)...)
		next.Env, next.Dir = cmd.Env, dir
		if out, err := next.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if left := folders(); len(left) > 0 {
			t.Fatalf("after %q: %q", args, left)
		}
	}
}
