//go:build unix

package runs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestRead_otherFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{aboutFile, taskFile, resultsFile, summaryFile, lockFile, ownerFile, journalsName} {
		for kind, put := range map[string]func(path, outside string) error{
			"link": func(path, outside string) error { return os.Symlink(outside, path) },
			"pipe": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				r := create(t)
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				outside := filepath.Join(t.TempDir(), "outside")
				if err := os.MkdirAll(outside, 0o700); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(r.Dir(), name)
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
				if err := put(path, outside); err != nil {
					t.Fatal(err)
				}
				for title, open := range map[string]func(string) error{
					"Read": func(dir string) error { _, err := Read(dir); return err },
					"Open": func(dir string) error { _, err := Open(dir); return err },
				} {
					if err := open(r.Dir()); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "it is not a") {
						t.Errorf("%s: %v", title, err)
					}
				}
				if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
					t.Errorf("%v, %v", entries, err)
				}
			})
		}
	}
}

// The file that names a run's process may be anything.
func TestFolder_live_large(t *testing.T) {
	r := create(t)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(r.Dir(), ownerFile))
	if err == nil {
		err = errors.Join(f.Truncate(1<<40), f.Close()) // more than memory
	}
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(r.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if read.live() {
		t.Error("a process writes it")
	}
}
