// Package examples tests that the examples do what the documentation says they do.
package examples

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/provider/docker"
)

const (
	image = "lazaret-test/python"
	// patience bounds one example; both need a few seconds.
	patience = 2 * time.Minute
)

// needDocker skips the test where no Engine answers, unless there has to be one.
func needDocker(t *testing.T) {
	t.Helper()
	p, err := docker.New(t.Context(), docker.Options{})
	if err == nil {
		err = p.Close(t.Context())
	}
	if err == nil {
		return
	}
	if os.Getenv("LAZARET_REQUIRE_DOCKER") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// build compiles an example and returns the program.
func build(t *testing.T, name string) string {
	t.Helper()
	lookAt(t, name)
	program := filepath.Join(t.TempDir(), name)
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./"+name).CombinedOutput()
	if err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}

// lookAt reads the files of a folder: go test caches a result until a file changes that the test itself
// has read, and knows nothing of what go build and the examples read.
func lookAt(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files in %s: %v", len(files), dir, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.IsDir() {
			continue
		}
		if _, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
}

// command prepares a program that is interrupted, and so cleans up, when it takes too long.
func command(t *testing.T, program string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

func TestQuickstart(t *testing.T) {
	needDocker(t)
	cmd, stdout, stderr := command(t, build(t, "quickstart"), image)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if got, want := stdout.String(), "exited with code 0, printed 42\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}

// rows says for each submission what its row has to look like after its name. What depends on the
// transport (whether a signal can be told from an exit code) is left open.
var rows = map[string]string{
	"alien.rb":      `(exited +(1|126|127|255)|not started +-)  runtime error .*exec (/submission/al|in service default).*`,
	"binary.py":     `exited +0  wrong answer .*\\x1b\[2J\\x1b\]0;owned.*`,
	"correct.py":    `exited +0  accepted .* 1000042`,
	"correct.sh":    `exited +0  accepted .* 1000042`,
	"crash.py":      `exited +1  runtime error .* IndexError: list index.*`,
	"daemon.py":     `exited +0  accepted .* 1000042`,
	"exit-124.sh":   `exited +124  runtime error .* I was told to stop`,
	"exit-137.sh":   `exited +137  runtime error .* Killed`,
	"flood.sh":      `exited +0  output limit .* 19\.1 MiB  \(cut\) all work.*`,
	"fork-bomb.py":  `timed out +-  time limit .*`,
	"loop.sh":       `timed out +-  time limit .*`,
	"memory-hog.py": `out of memory +137  memory limit .*`,
	"network.py":    `exited +0  wrong answer .* not sent: Network is unreach.*`,
	"segfault.py":   `(exited|signalled SEGV) +139  runtime error .*`,
	"snoop.py":      `exited +0  wrong answer .* found: nothing`,
	"stubborn.sh":   `timed out +-  time limit .* you cannot stop me`,
	"vandal.sh":     `lost +-  lost .* its supervisor.*`,
	"wrong.py":      `exited +0  wrong answer .* 1000046`,
}

func TestDemo(t *testing.T) {
	needDocker(t)
	lookAt(t, "submissions")
	// Few at once: an honest program has to stay within its 3 s on a machine that runs other tests too.
	cmd, stdout, stderr := command(t, build(t, "demo"), "-dir", "submissions", "-image", image, "-parallel", "2")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	t.Logf("\n%s", stdout)
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	seen := map[string]bool{}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
		name, rest, _ := strings.Cut(line, " ")
		want, ok := rows[name]
		if !ok {
			continue
		}
		seen[name] = true
		if !regexp.MustCompile(`^(` + want + `)$`).MatchString(strings.TrimSpace(rest)) {
			t.Errorf("the row\n%s\nis not of the form %s", line, want)
		}
	}
	for name := range rows {
		if !seen[name] {
			t.Errorf("no row for %s", name)
		}
	}
	closing := regexp.MustCompile(`^18 programs, 18 sandboxes, \d+\.\d s, nothing left behind$`)
	if last := lines[len(lines)-1]; !closing.MatchString(last) {
		t.Errorf("the last line is %q", last)
	}
}

func TestDemoLeavesNothingWhenInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no interrupt can be sent to a program there")
	}
	needDocker(t)
	cmd, _, stderr := command(t, build(t, "demo"), "-dir", "submissions", "-image", image)
	cmd.Stdout = nil
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var last string
	lines := bufio.NewScanner(pipe)
	for n := 0; lines.Scan(); n++ {
		if last = lines.Text(); n == 1 { // the heading and one program: the next ones run
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ends with %v, want exit code 1", err)
	}
	if !strings.HasSuffix(last, "nothing left behind") {
		t.Errorf("the last line is %q", last)
	}
	if !strings.Contains(stderr.String(), "interrupt") {
		t.Errorf("it says %q, want a word on the interrupt", stderr)
	}
	for _, left := range leftBehind(t) {
		t.Errorf("left behind: %s %s", left.Kind, left.Name)
	}
}

// leftBehind lists what demos that have ended left in the daemon.
func leftBehind(t *testing.T) []lazaret.Leftover {
	t.Helper()
	p, err := docker.New(t.Context(), docker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	all, err := p.Cleanup(t.Context(), lazaret.CleanupOptions{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(l lazaret.Leftover) bool {
		return !strings.HasPrefix(l.Sandbox, "demo-") || l.Owner == "alive"
	})
}
