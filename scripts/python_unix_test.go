//go:build unix

package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An environment whose packages could not be installed is an error, and is made again the next time.
func TestPython_notInstalled(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
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
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
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
