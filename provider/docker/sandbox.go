package docker

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// sandbox is the backend of one project.
type sandbox struct {
	p    *Provider
	spec fumehood.Spec
	rec  *provider.Recorder // records its start; nil if another process started it

	loaded    *compose.Project         // nil without a Compose project
	images    map[string]compose.Image // by service
	ids       map[string]string        // image IDs by service
	preparing provider.PrepareOptions
	mounts    []wire.FileID    // identities of the spec's mounts, as checked
	changes   []compose.Change // made to the project
	services  []*service       // the default one first; nil before they are created

	of fumehood.Info // from the labels if another process started it; also has the limits that are not enforced

	key     []byte    // the secret of a kept sandbox's resident guests; nil if there are none
	expires time.Time // when a kept sandbox expires; zero if it does not
	leave   func()    // stops watching a sandbox of another process; nil if this one started it

	place    *box.Place[*sandbox]
	admitted bool // it holds a slot of MaxRunning

	folder     string // on this machine, see state.go; empty without a folder
	socketless bool   // nothing can be mounted from it
	subnets    []netip.Prefix

	ran atomic.Bool // a command has run, started by any process

	mu      sync.Mutex // held during removal
	started bool       // completely
	gone    bool
}

var (
	_ provider.Backend = (*sandbox)(nil)
	_ provider.Stopper = (*sandbox)(nil)
	_ provider.Freezer = (*sandbox)(nil)
)

// removeTimeout bounds the removal of one sandbox.
const removeTimeout = 30 * time.Second

// ownerLabels returns the labels of everything that this process creates, except images.
func (p *Provider) ownerLabels() map[string]string {
	return map[string]string{
		owner.LabelOwner: p.self.String(), owner.LabelLease: p.clock().Add(p.opts.Lease).UTC().Format(time.RFC3339),
	}
}

// labels returns the labels of every object of the sandbox. It sets all labels that Fumehood defines. Otherwise an
// image's own labels would match where objects are only filtered by label. The seal covers the labels that are read.
func (sb *sandbox) labels() map[string]string {
	l := sb.p.ownerLabels()
	l[owner.LabelSandbox], l[owner.LabelKept], l[owner.LabelSeccomp] = sb.spec.Name, strconv.FormatBool(sb.spec.Keep), sb.spec.Seccomp
	maps.Copy(l, describing(provider.Describe(&sb.spec, fumehood.Info{Unenforced: sb.of.Unenforced})))
	if !sb.spec.Keep {
		return l
	}
	l[owner.LabelKey], l[owner.LabelBinary], l[owner.LabelExpires] = hex.EncodeToString(sb.key), sb.spec.Binary, ""
	if !sb.expires.IsZero() {
		l[owner.LabelExpires] = sb.expires.UTC().Format(time.RFC3339)
	}
	return l
}

// serves reports whether main processes that are guests serve a host: this process, and for a kept sandbox later ones
// too.
func (sb *sandbox) serves() bool { return sb.p.opts.Transport == TransportGuest }

// direct reports whether commands and files use no program in the sandbox.
func (sb *sandbox) direct() bool { return sb.p.opts.Transport == TransportEngine }

// Info returns a description of the sandbox.
func (sb *sandbox) Info() fumehood.Info {
	info := sb.of
	info.Name, info.Provider = sb.spec.Name, sb.p.Name()
	for _, s := range sb.services {
		info.Services = append(info.Services, s.info)
	}
	return info
}

// Service returns the backend of a service.
func (sb *sandbox) Service(name string) provider.ServiceBackend { return sb.service(name) }

func (sb *sandbox) service(name string) *service {
	return sb.services[slices.IndexFunc(sb.services, func(s *service) bool { return s.Name == name })]
}

// forget releases the sandbox and makes Close leave the daemon's objects in place.
func (sb *sandbox) forget() error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.gone = true
	sb.p.release(sb)
	return sb.removeFolder()
}

// Close removes the sandbox's objects. It leaves them in place if the sandbox is a kept one that has started.
func (sb *sandbox) Close(ctx context.Context) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.gone {
		return nil
	}
	for _, s := range sb.services {
		s.forwards.Close()
		s.guests.Close()
	}
	if !sb.spec.Keep || !sb.started {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sb.p.opts.speedup.Of(removeTimeout))
		defer cancel()
		if err := sb.remove(ctx); err != nil {
			return sb.unanswered(ctx, err)
		}
		if err := sb.removeFolder(); err != nil {
			return err
		}
	}
	if sb.leave != nil {
		sb.leave()
	}
	sb.gone = true
	sb.p.release(sb)
	return nil
}

// unanswered gives an error that our own deadline caused the class ErrInfrastructure. The caller has not canceled
// anything.
func (sb *sandbox) unanswered(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return &fumehood.Error{
		Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("it was not removed within %v: %s", sb.p.opts.speedup.Of(removeTimeout), err.Error()),
		Hint: "close it again, or remove it with `fumehood cleanup` once the daemon answers",
	}
}

// Stop kills the main processes of a kept sandbox's containers, and thereby all other processes.
func (sb *sandbox) Stop(ctx context.Context) error {
	if !sb.spec.Keep {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: errors.New("not a kept sandbox"), Hint: "set Keep in its spec"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sb.p.opts.speedup.Of(removeTimeout))
	defer cancel()
	var ids []string
	for _, s := range sb.services {
		for _, c := range s.containers {
			ids = append(ids, c.ID)
		}
	}
	return inParallel(len(ids), func(i int) error { return sb.p.engine.StopContainer(ctx, ids[i]) })
}

// Freeze pauses all containers. thaw resumes them.
func (sb *sandbox) Freeze(ctx context.Context) (thaw func(context.Context) error, err error) {
	var mu sync.Mutex
	var paused []string
	thaw = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sb.p.opts.speedup.Of(removeTimeout))
		defer cancel()
		return inParallel(len(paused), func(i int) error { return sb.p.engine.Unpause(ctx, paused[i]) })
	}
	var ids []string
	for _, s := range sb.services {
		for _, c := range s.containers {
			ids = append(ids, c.ID)
		}
	}
	err = inParallel(len(ids), func(i int) error {
		is, err := sb.p.engine.Pause(ctx, ids[i])
		if is || err != nil { // on an error the container may be paused
			mu.Lock()
			defer mu.Unlock()
			paused = append(paused, ids[i])
		}
		return err
	})
	if err == nil {
		return thaw, nil
	}
	if holds, herr := sb.p.holds(ctx); herr == nil && holds == (engine.Holds{}) {
		err = &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("the daemon has no control groups to freeze with: %w", err)}
	}
	return nil, errors.Join(err, thaw(ctx))
}

// alone reports whether the sandbox is only a container.
func (sb *sandbox) alone() bool {
	return sb.spec.Compose == nil && sb.spec.Network.Mode != fumehood.NetworkBridge
}

// remove removes the sandbox's objects. If the sandbox is more than a container, it finds them by their labels.
func (sb *sandbox) remove(ctx context.Context) error {
	if sb.alone() && len(sb.services) > 0 {
		return removeAll(ctx, sb.p.engine, []engine.Object{{Kind: engine.Container, ID: sb.services[0].id, Name: compose.ContainerName(sb.spec.Name)}})
	}
	objects, err := sb.p.engine.Objects(ctx, owner.LabelSandbox+"="+sb.spec.Name, engine.Container, engine.Network, engine.Volume)
	if err != nil {
		return err
	}
	ours := slices.DeleteFunc(objects, func(o engine.Object) bool { return o.Labels[owner.LabelOwner] != sb.p.self.String() })
	if err := removeAll(ctx, sb.p.engine, ours); err != nil {
		return err
	}
	sb.p.subnets.release(sb.subnets)
	sb.subnets = nil
	return nil
}

// taken returns the error for a name that another sandbox has.
func (sb *sandbox) taken() error {
	return &fumehood.Error{
		Class: fumehood.ErrConfig, Err: fmt.Errorf("a sandbox of that name exists already"),
		Hint: "choose another name, or remove it with `fumehood cleanup " + sb.spec.Name + "`",
	}
}
