// Package examples tests that the examples do what the documentation says they do.
package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/fumehood/fumehood/internal/tier"
	"github.com/fumehood/fumehood/provider/docker"
)

const (
	image = "fumehood-test/python"
	// patience bounds one example; the judge needs a minute.
	patience = 5 * time.Minute
)

// needDocker skips the test where no Engine answers, unless there has to be one.
func needDocker(t *testing.T) {
	t.Helper()
	tier.NeedDocker(t)
	p, err := docker.New(t.Context(), docker.Options{})
	if err == nil {
		err = p.Close(t.Context())
	}
	if err == nil {
		return
	}
	tier.Missing(t, tier.Quick, err)
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
