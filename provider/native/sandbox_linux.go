//go:build amd64 || arm64

package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// sandbox is the backend of one sandbox.
type sandbox struct {
	box.Sandbox
	p        *Provider
	mounts   []setup.Mount // of the spec
	oci      *ociRuntime   // that starts the processes; nil for none
	plans    []servicePlan // of the services; nil if another process has started it
	folder   string        // empty before it exists
	guest    string        // the path of the guest's program
	services []*service    // in the order of Services; the first one has made the network namespace
	network  *network      // nil if there is none, or another process has started it
	stopping sync.Mutex    // held while a service is stopped
	helper   int           // the number of the process that connects that network; 0 for none
}

var (
	_ box.Body         = (*sandbox)(nil)
	_ provider.Freezer = (*sandbox)(nil)
	_ provider.Checker = (*sandbox)(nil)
	_ provider.Stopper = (*sandbox)(nil)
)

// add adds a service.
func (sb *sandbox) add(s *service) {
	sb.services, sb.Services = append(sb.services, s), append(sb.Services, s.Service)
}

// Check returns an error if a service or the network has ended.
func (sb *sandbox) Check(ctx context.Context) error {
	for _, s := range sb.services {
		if err := (unit{s}).Death(ctx).Err; err != nil {
			return err
		}
	}
	return sb.network.checkHelper()
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

// Leave closes the connections to a kept sandbox.
func (sb *sandbox) Leave() {
	for _, s := range sb.services {
		s.leave()
	}
}

// Remove removes the sandbox.
func (sb *sandbox) Remove(ctx context.Context) error {
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
	if sb.folder != "" {
		if err := owner.Discard(sb.folder); err != nil {
			return err
		}
	}
	_ = sb.closeImages() // it only releases locks, and what has the names by now may be another sandbox's
	return nil
}

// closeImages releases the images. They are locked so long as the sandbox exists.
func (sb *sandbox) closeImages() (err error) {
	for _, plan := range sb.plans {
		err = errors.Join(err, plan.image.Close())
	}
	sb.plans = nil
	return err
}

// dropImages releases the images of a sandbox that cannot be made because of err, which it returns.
func (sb *sandbox) dropImages(err error) error {
	if cerr := sb.closeImages(); cerr != nil {
		return errors.Join(err, cerr)
	}
	return err
}
