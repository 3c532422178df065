//go:build unix

package taskfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

// Read does not block on FIFOs, and does not read devices or files that are too large.
func TestRead(t *testing.T) {
	fifo := func(path string) error { return syscall.Mkfifo(path, 0o600) }
	device := func(path string) error { return os.Symlink("/dev/zero", path) }
	large := func(path string) error {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Truncate(maxFile + 1) // sparse
	}
	const sample = "samples: [{id: a, command: cat"
	for name, tt := range map[string]struct {
		task, path string
		make       func(path string) error
	}{
		"samples/FIFO":     {"samples_from: x.yaml", "x.yaml", fifo},
		"samples/device":   {"samples_from: x.yaml", "x.yaml", device},
		"samples/large":    {"samples_from: x.yaml", "x.yaml", large},
		"folder/FIFO":      {"sample_folders: d*", "d/sample.yaml", fifo},
		"spec/FIFO":        {"environment: {file: x}\n" + sample + "}]", "x", fifo},
		"compose/FIFO":     {"environment: {compose: x}\n" + sample + "}]", "x", fifo},
		"compose/device":   {"environment: {compose: x}\n" + sample + "}]", "x", device},
		"dockerfile/FIFO":  {"environment: {dockerfile: x}\n" + sample + "}]", "x", fifo},
		"stdin/large":      {sample + ", stdin: x}]", "x", large},
		"files/large":      {sample + ", files: {a: x}}]", "x", large},
		"setup/large":      {sample + ", setup: x}]", "x", large},
		"step stdin/large": {"samples: [{id: a, steps: [{command: cat, stdin: x}]}]", "x", large},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filetest.Lay(t, map[string]string{"task.yaml": "name: t\n" + tt.task + "\n"})
			path := filepath.Join(dir, tt.path)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), tt.make(path)); err != nil {
				t.Fatal(err)
			}
			_, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{AllowRead: []string{"/dev/zero"}})
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "regular file") && !strings.Contains(err.Error(), "is larger than") {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("task/FIFO", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "task.yaml")
		if err := fifo(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, ReadOptions{}); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("got %v", err)
		}
	})
}

// What a hidden path holds is checked before the run, not when the first attempt is graded.
func TestRead_hiddenTree(t *testing.T) {
	t.Parallel()
	dir := filetest.Lay(t, map[string]string{
		"task.yaml": "name: t\ncommand: [a]\ngrader:\n  command: [g]\n  hidden: {tests: /t, linked: /l}\nsamples: [{id: a}, {id: b}]\n",
		"tests/x":   "", "linked": "-> tests", "tests/link": "-> none",
	})
	if err := syscall.Mkfifo(filepath.Join(dir, "tests/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{})
	if !errors.Is(err, fumehood.ErrConfig) || strings.Count(err.Error(), "pipe is a pipe, which cannot be copied") != 2 || strings.Count(err.Error(), "task.yaml:5: grader: hidden path") != 2 {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "tests/pipe")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(filepath.Join(dir, "task.yaml"), ReadOptions{}); err != nil {
		t.Error(err)
	}
}
