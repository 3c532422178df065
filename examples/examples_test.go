// Package examples tests that the examples do what the documentation states.
package examples

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	_ "github.com/fumehood/fumehood/internal/owner/reaper/early"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fumehood/fumehood/internal/cli"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

const (
	image = "fumehood-test/python"
	// patience is the longest time for one example. The judge takes about a minute.
	patience = 5 * time.Minute
)

// needDocker skips the test if no Engine answers. It fails the test if the tier requires an Engine.
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

// TestMain makes this test binary act as fumehood when it is started under that name.
func TestMain(m *testing.M) {
	docker.RunReaper()
	testscript.Main(withPrograms{m}, map[string]func(){"fumehood": func() {
		os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}})
}

// programs is the folder for the programs that build compiles. TestMain sets it once.
var programs string

// withPrograms creates the folder programs, runs the tests and removes the folder.
type withPrograms struct{ *testing.M }

func (tests withPrograms) Run() int {
	var err error
	if programs, err = os.MkdirTemp("", "examples-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	return tests.M.Run()
}

// compiled compiles quickstart, walkthrough and the program in the README with one command.
var compiled = sync.OnceValue(func() error {
	overlay, err := readmeOverlay(programs)
	if err != nil {
		return err
	}
	to := programs + string(filepath.Separator)
	out, err := exec.Command("go", "build", "-ldflags=-w", "-overlay", overlay, "-o", to, "./quickstart", "./walkthrough", "./readme").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
})

// build compiles a program and returns its path.
func build(t *testing.T, name string) string {
	t.Helper()
	if err := compiled(); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(programs, name)
}

// lookAt reads the files below a folder. go test caches a result until a file changes that the test itself has read,
// and it does not see which files go build and the examples read.
func lookAt(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			_, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// command prepares a program. After patience, the program is interrupted, so that it cleans up.
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
	t.Parallel()
	needDocker(t)
	lookAt(t, "quickstart")
	cmd, stdout, stderr := command(t, build(t, "quickstart"), image)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if got, want := stdout.String(), "exited with code 0, printed 42\n"; got != want {
		t.Errorf("it prints %q, want %q", got, want)
	}
}
