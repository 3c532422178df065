//go:build amd64 || arm64

package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/opencontainers/cgroups"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// sandbox is the backend of one sandbox.
type sandbox struct {
	p        *Provider
	place    *box.Place[*sandbox]
	name     string
	folder   string
	guest    string     // the path of the guest's program
	services []*service // the default one first, which has made the network namespace
	network  *network   // nil if there is none, or another process has started it
	helper   int        // the number of the process that connects that network; 0 for none
	ran      atomic.Bool

	key  []byte        // the secret of the guests of a sandbox that outlives this process; nil for others
	kept atomic.Bool   // such a sandbox is complete: Close leaves it in place
	of   fumehood.Info // from its file if another process has started it
}

var (
	_ provider.Backend = (*sandbox)(nil)
	_ provider.Freezer = (*sandbox)(nil)
	_ provider.Checker = (*sandbox)(nil)
	_ provider.Stopper = (*sandbox)(nil)
)

// Info returns a description of the sandbox.
func (sb *sandbox) Info() fumehood.Info {
	info := sb.of
	info.Name, info.Provider, info.Services = sb.name, sb.p.Name(), nil
	for _, s := range sb.services {
		info.Services = append(info.Services, s.info)
	}
	return info
}

// Service returns the backend of a service.
func (sb *sandbox) Service(name string) provider.ServiceBackend {
	return sb.services[slices.IndexFunc(sb.services, func(s *service) bool { return s.info.Name == name })]
}

// Check returns an error if a service or the network has ended.
func (sb *sandbox) Check(ctx context.Context) error {
	for _, s := range sb.services {
		if err := (host{s}).Death(ctx).Err; err != nil {
			return err
		}
	}
	return sb.network.check()
}

// Freeze suspends all processes.
func (sb *sandbox) Freeze(ctx context.Context) (func(context.Context) error, error) {
	set := func(ctx context.Context, state cgroups.FreezerState) error {
		var errs []error
		for _, s := range sb.services {
			errs = append(errs, s.freeze(ctx, state))
		}
		return errors.Join(errs...)
	}
	if err := set(ctx, cgroups.Frozen); err != nil {
		return nil, errors.Join(err, set(ctx, cgroups.Thawed))
	}
	return func(ctx context.Context) error { return set(ctx, cgroups.Thawed) }, nil
}

// lockWithin bounds the wait for another process, which normally takes some milliseconds but may be suspended.
const lockWithin = 10 * time.Second

// lockFreezer takes the lock of freezing, resuming, and having a thread in the control groups, which would be frozen too. All
// processes that use the sandbox share the lock.
func (sb *sandbox) lockFreezer(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockWithin) // resuming must not fail
	defer cancel()
	l := flock.New(filepath.Join(sb.folder, "freezer.lock"))
	if _, err := l.TryLockContext(ctx, time.Millisecond); err != nil {
		return nil, fmt.Errorf("wait for other processes: %w", err)
	}
	return func() { _ = l.Unlock() }, nil
}

// cgroupName returns the name of the control group of the sandbox with a folder. Cleanup finds it by the folder.
func cgroupName(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return folder[strings.LastIndexByte(folder, '/')+1:] + "-" + hex.EncodeToString(sum[:4])
}

// groupOf returns the name of the control group of a service: that of the sandbox with a folder, or one in it if the
// sandbox has several services.
func groupOf(folder, service string, several bool) string {
	if !several {
		return cgroupName(folder)
	}
	return cgroupName(folder) + "/service-" + service
}

// startersName returns the name of the control group of a runtime's own processes.
func startersName(folder string) string { return cgroupName(folder) + "-runtime" }

// Close removes the sandbox. It leaves a kept one in place.
func (sb *sandbox) Close(ctx context.Context) error {
	if sb.kept.Load() {
		for _, s := range sb.services {
			s.leave()
		}
		sb.place.Leave()
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, s := range sb.services {
		errs = append(errs, s.close(ctx))
	}
	if len(sb.services) > 1 {
		errs = append(errs, removeGroups(ctx, sb.folder))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := owner.Discard(sb.folder); err != nil {
		return err
	}
	for _, s := range sb.services {
		_ = s.image.Close() // it only releases a lock
	}
	sb.place.Leave()
	return nil
}
