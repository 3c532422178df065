//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/owner"
)

// firstFile is the prefix of the file, in the folder of a sandbox of a process that delegates, that identifies the first
// process of a service. Without control groups nothing else finds the processes of a sandbox whose owner was killed while it was being
// kept.
const firstFile = "first-"

// prepareFirst gives the first process its subordinate ids and writes the file, before the process does anything.
func (s *service) prepareFirst(ctx context.Context) error {
	if s.oci == nil && s == s.sb.services[0] {
		if err := s.sb.p.ids.assign(ctx, s.init.pid); err != nil {
			return err
		}
	}
	if !delegates() || s.sb.Key == nil {
		return nil
	}
	id, err := owner.Of(s.init.pid)
	if err != nil {
		return err
	}
	return owner.WriteFile(filepath.Join(s.sb.folder, firstFile+s.Info.Name), []byte(id.String()))
}

// endFirst kills the first processes of the sandbox with a folder that were recorded, and waits until everything in their
// PID namespaces has ended.
func endFirst(ctx context.Context, folder string) error {
	all, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range all {
		if err == nil && strings.HasPrefix(f.Name(), firstFile) {
			err = endRecorded(ctx, filepath.Join(folder, f.Name()))
		}
	}
	return err
}

// endRecorded is endFirst for one file.
func endRecorded(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p, err := find(string(text))
	if err != nil {
		return fmt.Errorf("first process: %w", err)
	}
	if p.pidfd == nil {
		return nil
	}
	defer p.pidfd.Close()
	_ = unix.PidfdSendSignal(int(p.pidfd.Fd()), unix.SIGKILL, nil, 0) //nolint:gosec // a descriptor; it may have ended
	return eventually(ctx, func() (bool, error) { return hasEnded(p.pidfd), nil })
}

// killInside kills all processes of the service but the first one, without control groups: those in its PID namespace.
func (s *service) killInside(ctx context.Context) error {
	var namespace unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", s.init.pid), &namespace)
	if errors.Is(err, fs.ErrNotExist) || s.init.over() { // the number may be another process's
		return nil
	}
	if err != nil {
		return err
	}
	return eventually(ctx, func() (none bool, err error) {
		all, err := os.ReadDir("/proc")
		none = true
		for _, e := range all {
			pid, err := strconv.Atoi(e.Name())
			if err == nil && pid != s.init.pid && killIn("pid", namespace.Ino, pid) {
				none = false
			}
		}
		return none, err
	})
}

// eventually calls f until it returns true or an error.
func eventually(ctx context.Context, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	for {
		if ok, err := f(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(stopPause):
		case <-ctx.Done():
			return fmt.Errorf("processes have not ended %v after SIGKILL", endWithin)
		}
	}
}
