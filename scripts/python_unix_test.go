//go:build unix

package scripts_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/test/tier"
)

// An environment whose packages could not be installed is an error, and is made again the next time.
func TestPython_notInstalled(t *testing.T) {
	t.Parallel()
	tier.Program(t, tier.CI, "python3")
	dir := t.TempDir()
	script, err := os.ReadFile("python")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(dir, "scripts/python"):                      string(script),
		filepath.Join(dir, "clients/python/requirements/dev.txt"): "no-such-package==1.0 --hash=sha256:" + strings.Repeat("0", 64) + "\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := files.WriteProgram(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	environment := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/python"), "env")
		cmd.Env = append(os.Environ(), "PIP_NO_INDEX=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := environment(); err == nil || !strings.Contains(out, "python: the packages of dev.txt are not installed") {
		t.Errorf("got %v, %q", err, out)
	}
	if out, err := environment(); err == nil {
		t.Errorf("the second time there was no error: %q", out)
	}
}

// Without Python 3.10 or newer the tests of the client say that they are skipped, and fail where they have to run.
func TestPython_client(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ python, tier, want string }{
		"none":    {"", "quick", "python: SKIP: the tests of the client need Python 3.10 or newer, but there is no python3\n"},
		"old":     {"[[ $1 != -V ]] || { echo Python 3.9.2; exit 0; }; exit 1", "quick", "python: SKIP: the tests of the client need Python 3.10 or newer, but Python 3.9.2 is installed\n"},
		"none ci": {"", "ci", "python: the tests of the client need Python 3.10 or newer, but there is no python3\nexit status 1"},
		"runs":    {"[[ $3 != -m ]] || exit 7", "quick", "exit status 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.python != "" {
				script(t, filepath.Join(dir, "python3"), c.python)
			}
			for _, name := range []string{"bash", "dirname"} {
				path := tier.Program(t, tier.Quick, name)
				if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "./python", "client")
			cmd.Env = []string{"PATH=" + dir, "HOME=" + dir, tier.Variable + "=" + c.tier}
			out, err := cmd.CombinedOutput()
			if err != nil {
				out = append(out, err.Error()...)
			}
			if string(out) != c.want {
				t.Errorf("got %q, want %q", out, c.want)
			}
		})
	}
}

// script writes a script for bash.
func script(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), files.WriteProgram(path, []byte("#!/usr/bin/env bash\n"+text+"\n"), 0o700)); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}

// Tests that fail in Go do not hide those of the client.
func TestMake_test(t *testing.T) {
	t.Parallel()
	tier.Program(t, tier.CI, "make")
	dir := t.TempDir()
	makefile, err := os.ReadFile("../Makefile")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "Makefile"), makefile, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"ensure-docker": "", "test-images": "", "test": "echo go failed; exit 3", "python": "echo client"} {
		script(t, filepath.Join(dir, "scripts", name), text)
	}
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "test", "GO=true")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MAKEFLAGS=")
	out, err := cmd.Output()
	if err == nil || !strings.HasSuffix(string(out), "go failed\nclient\n") {
		t.Errorf("%q, %v", out, err)
	}
}

// The check that keeps tasks from naming files outside of their folders needs no framework.
func TestPython_framework(t *testing.T) {
	t.Parallel()
	tier.Program(t, tier.CI, "python3")
	cmd := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "tests.test_framework")
	cmd.Dir, cmd.Env = "../clients/python", append(os.Environ(), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
