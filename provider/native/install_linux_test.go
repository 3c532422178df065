//go:build amd64 || arm64

package native

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Users of sandboxes enter the program's folder, whatever the umask of the process that makes it.
func TestInstall_umask(t *testing.T) {
	dir := t.TempDir() + "/guest"
	before := unix.Umask(0o077)
	file, err := install(t.Context(), dir, nil)
	unix.Umask(before)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{file: 0o111, filepath.Dir(file): 0o711, dir: 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// A process that is forked while the program is written must not have it open: the program could not be executed then.
func TestWrite_forks(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	var others sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.CommandContext(t.Context(), "/bin/true").Run()
				}
			}
		})
	}
	defer others.Wait()
	defer close(done)
	dir := t.TempDir()
	for range 100 {
		file := filepath.Join(dir, "program")
		if err := writeProgram(file, program, 0o711); err != nil {
			t.Fatal(err)
		}
		if err := exec.CommandContext(t.Context(), file).Run(); err != nil {
			t.Fatal(err)
		}
	}
}
