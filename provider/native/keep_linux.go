//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/wire"
)

// A kept sandbox outlives the process that starts it. Its guests are residents (package box): they listen on sockets
// in the sandbox's folder, and do not end with a connection. The folder's file says what another process needs to know.
// Only a complete sandbox is marked as kept, so one whose start was interrupted is removed like any other.

// sockets returns the folder for the sockets of the service's guests; empty if the sandbox is not to be kept.
func (s *service) sockets() string {
	if s.sb.Key == nil {
		return ""
	}
	return filepath.Join(s.sb.folder, "sockets-"+s.Info.Name)
}

// makeSockets makes the folder for sockets, and has it mounted.
func (s *service) makeSockets() error {
	folder := s.sockets()
	if folder == "" {
		return nil
	}
	s.config.Root.Sockets = folder
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	return os.Chmod(folder, 0o755) //nolint:gosec // for the sandbox's users; on the host, the parent folder is closed
}

// keep makes a sandbox that has started outlive this process.
func (sb *sandbox) keep(ctx context.Context) error {
	for _, s := range sb.services {
		if err := s.image.Keep(ctx, sb.folder); err != nil {
			return err
		}
		if err := s.main.Leave(ctx); err != nil {
			return err
		}
	}
	if ttl := sb.Spec.TTL; ttl > 0 { // it counts from the end of the start
		sb.Expires = time.Now().Add(ttl)
	}
	if err := sb.writeState(); err != nil {
		return err
	}
	return owner.Keep(sb.folder, sb.Expires)
}

// leave closes the connections to the service, which goes on.
func (s *service) leave() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Forwards.Close()
	s.Guests.Close()
	s.main.Wait()
	if s.limiter != nil {
		s.limiter.close()
		s.limiter = nil
	}
	s.init.leave()
	if s.image != nil {
		_ = s.image.Close() // it only releases a lock
	}
}

// find returns the first process of a service, which another process has started. An error means that the process
// cannot be seen from here.
func find(text string) (*process, error) {
	id, err := owner.Parse(text)
	if err != nil {
		return nil, err
	}
	self, err := owner.Self()
	if err != nil {
		return nil, err
	}
	p := &process{pid: id.PID}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err == nil {
		p.pidfd = os.NewFile(uintptr(fd), "sandbox") //nolint:gosec // not negative
	}
	// The descriptor came first, so it is not of a later process with the same number.
	switch owner.Judge(self, id) {
	case owner.Alive:
		if err != nil {
			return nil, os.NewSyscallError("pidfd_open", err)
		}
		return p, nil
	case owner.Unknown:
		err = errors.New("it runs on another machine, or in another PID namespace")
	case owner.Dead:
		err = nil
	}
	if p.pidfd != nil {
		_ = p.pidfd.Close() // nothing was written
		p.pidfd = nil
	}
	return p, err
}

// hasEnded reports whether the process of a pidfd has ended; false if the pidfd is closed.
func hasEnded(pidfd *os.File) (ended bool) {
	_ = wire.Control(pidfd, func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor has 31 bits
		ended = n > 0
		return err
	})
	return ended
}

// stopPause is the pause between attempts to kill everything in a service.
const stopPause = time.Millisecond

// stop kills everything that runs in a service of a kept sandbox. The first process of its guest goes on, because the files
// exist only as long as it does.
func (s *service) stop(ctx context.Context) error {
	s.sb.stopping.Lock() // each service has the whole time
	defer s.sb.stopping.Unlock()
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	if !s.runsProgram() {
		return s.killAll(ctx)
	}
	asked := s.endRestarts(ctx)
	err := s.killAll(ctx)
	if asked != nil { // the guest was suspended, or what is killed now kept it busy
		err = errors.Join(err, s.endRestarts(ctx), s.killAll(ctx))
	}
	return err
}

// killAll kills all processes of the service but the first one. They are suspended meanwhile, so that none escapes by
// starting another one. Version 1 of control groups may give up suspending them on a busy machine; then it tries again.
func (s *service) killAll(ctx context.Context) error {
	if !s.cgroup.has("freezer") {
		return s.killInside(ctx)
	}
	for {
		failed := s.freeze(ctx, cgroups.Frozen)
		pids, err := s.cgroup.processes()
		left := 0
		for _, pid := range pids {
			if pid != s.init.pid && pid != s.network().pid() && pid != s.sb.helper {
				left++
				_ = unix.Kill(pid, unix.SIGKILL) // a suspended process does not end
			}
		}
		if err := errors.Join(err, s.freeze(ctx, cgroups.Thawed)); err != nil || failed == nil && left == 0 {
			return err
		}
		select {
		case <-time.After(stopPause):
		case <-ctx.Done():
			if failed != nil {
				return failed
			}
			return fmt.Errorf("%d processes have not ended %v after SIGKILL", left, endWithin)
		}
	}
}

// endRestarts makes the service's own program end for good when it is killed.
func (s *service) endRestarts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := s.Guests.Restart(ctx, wire.Restart{}); err != nil {
		return fmt.Errorf("end the restarts of service %s: %w", s.Info.Name, err)
	}
	return nil
}
