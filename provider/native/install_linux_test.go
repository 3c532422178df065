//go:build amd64 || arm64

package native

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

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
		if err := write(file, program, 0o711); err != nil {
			t.Fatal(err)
		}
		if err := exec.CommandContext(t.Context(), file).Run(); err != nil {
			t.Fatal(err)
		}
	}
}
