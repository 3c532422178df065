//go:build amd64 || arm64

package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guests"
	"github.com/fumehood/fumehood/internal/imagestore"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/setup"
	"github.com/fumehood/fumehood/provider"
)

// sandbox is the backend of one sandbox, and of its only service.
type sandbox struct {
	p      *Provider
	folder string
	guest  string // the path of the guest's program
	cgroup cgroup
	info   fumehood.Info
	config setup.Config // as of the first process
	term   bool         // the environment sets the variable TERM
	image  *imagestore.Image

	init   *process
	guests *guests.Manager
	ran    atomic.Bool
	frozen atomic.Bool
	ooms   atomic.Int64 // the number of out-of-memory kills when the sandbox was removed

	mu     sync.Mutex
	closed bool
	joined []*process // guests of other users
}

var (
	_ provider.Backend        = (*sandbox)(nil)
	_ provider.ServiceBackend = (*sandbox)(nil)
	_ provider.Freezer        = (*sandbox)(nil)
	_ provider.Checker        = (*sandbox)(nil)
)

func (s *sandbox) Info() fumehood.Info { return s.info }

func (s *sandbox) Service(string) provider.ServiceBackend { return s }

// Start runs a command through the guest of its user.
func (s *sandbox) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	provider.SetTerm(&cmd, s.term)
	p, err := s.guests.Start(ctx, cmd, live, out)
	if err != nil {
		return nil, s.guests.Explain(ctx, err)
	}
	return p, nil
}

// Files returns access to files through the guest of a user.
func (s *sandbox) Files(user string) provider.FileBackend { return s.guests.Files(user) }

// Check returns an error if the sandbox has ended.
func (s *sandbox) Check(ctx context.Context) error { return host{s}.Death(ctx).Err }

// Freeze suspends all processes.
func (s *sandbox) Freeze(context.Context) (func(context.Context) error, error) {
	set := func(state cgroups.FreezerState, frozen bool) error {
		if err := s.cgroup.Freeze(state); err != nil {
			return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
		}
		s.frozen.Store(frozen)
		return nil
	}
	if err := set(cgroups.Frozen, true); err != nil {
		return nil, errors.Join(err, s.cgroup.Freeze(cgroups.Thawed))
	}
	return func(context.Context) error { return set(cgroups.Thawed, false) }, nil
}

// cgroupName returns the name of the control group of the sandbox with a folder. Cleanup finds it by the folder.
func cgroupName(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return folder[strings.LastIndexByte(folder, '/')+1:] + "-" + hex.EncodeToString(sum[:4])
}

// build starts the sandbox. If it fails, Close removes what was made.
func (s *sandbox) build(ctx context.Context) error {
	if err := os.Mkdir(s.config.Root.Scratch, 0o700); err != nil {
		return err
	}
	if err := s.cgroup.create(); err != nil {
		return fmt.Errorf("make control groups: %w", err)
	}
	limited := make(chan error, 1)
	go func() { limited <- s.cgroup.limit() }()
	var err error
	s.init, err = launch(s.guest, s.cgroup, &unix.SysProcAttr{Cloneflags: namespaces}, "setup")
	if lerr := <-limited; lerr != nil {
		return fmt.Errorf("set limits: %w", lerr)
	}
	if err != nil {
		return fmt.Errorf("start the guest in new namespaces: %w", err)
	}
	if err := s.init.configure(ctx, s.config); err != nil {
		return err
	}
	if err := s.guests.Attach(ctx); err != nil {
		return err
	}
	return s.guests.Ready(ctx)
}

// join starts a guest of another user in the sandbox.
func (s *sandbox) join(ctx context.Context, user string) (guests.Exec, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox is closed")}
	}
	p, err := launch(s.guest, s.cgroup, &unix.SysProcAttr{}, "enter", s.init.pidfd)
	if err == nil {
		s.joined = append(slices.DeleteFunc(s.joined, (*process).over), p)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c := setup.Config{User: user, Hostname: s.config.Hostname, Env: s.config.Env, Capabilities: s.config.Capabilities, Seccomp: s.config.Seccomp}
	if err := p.configure(ctx, c); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return joined{p}, nil
}

// Close removes the sandbox.
func (s *sandbox) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	s.closed = true
	all := s.joined
	s.mu.Unlock()
	s.ooms.Store(int64(s.cgroup.ooms()))
	if s.frozen.Swap(false) {
		_ = s.cgroup.Freeze(cgroups.Thawed) // removing the control group reports what is left
	}
	var errs []error
	if s.init != nil {
		errs = append(errs, s.init.kill()) // the kernel kills everything in its PID namespace
	}
	s.guests.Close()
	for _, p := range all {
		errs = append(errs, p.kill())
	}
	if err := s.cgroup.remove(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if err := owner.Discard(s.folder); err != nil {
		return errors.Join(append(errs, err)...)
	}
	_ = s.image.Close() // it only releases a lock
	s.p.forget(s)
	return errors.Join(errs...)
}
