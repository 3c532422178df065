package files

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Processes in new user namespaces, which other goroutines start, keep this program's files open for a while.
func TestWriteProgram_forks(t *testing.T) {
	t.Parallel()
	ids := []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	fork := func() error {
		cmd := exec.CommandContext(t.Context(), "true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids}
		return cmd.Run()
	}
	if err := fork(); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	done := make(chan struct{})
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = fork()
				}
			}
		})
	}
	for i := range 30 {
		if err := WriteProgram(path, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		// Another process executes the program.
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", `exec "$0"`, path).CombinedOutput(); err != nil {
			t.Errorf("round %d: %v: %s", i, err, out)
		}
	}
	close(done)
	forks.Wait()
}

// A written file may be a program, so the writer waits for processes that are being started and may have it open.
func TestWriter_Finish_forks(t *testing.T) {
	t.Parallel()
	w, err := Create(filepath.Join(t.TempDir(), "program"), Options{Mode: 0o700, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	finished := make(chan error, 1)
	syscall.ForkLock.Lock()
	go func() { finished <- w.Finish(nil) }()
	select {
	case err := <-finished:
		t.Errorf("finished while a process is being started: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	syscall.ForkLock.Unlock()
	if !t.Failed() {
		if err := <-finished; err != nil {
			t.Error(err)
		}
	}
}

// What is at the path of a file when it is finished keeps its time.
func TestWriter_Finish_swapped(t *testing.T) {
	t.Parallel()
	dir, old := t.TempDir(), time.Unix(1_000_000_000, 123_456_789)
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	w, err := Create(path, Options{Mode: 0o644, UID: -1, GID: -1, ModTime: old})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(path, path+".moved"), os.WriteFile(other, nil, 0o600), os.Symlink(other, path), w.Finish(nil)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{path + ".moved": true, other: false} {
		if info, err := os.Stat(name); err != nil || info.ModTime().Equal(old) != want {
			t.Errorf("%s was changed at %v, %v", name, info.ModTime(), err)
		}
	}
}
