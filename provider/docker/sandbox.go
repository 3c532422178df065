package docker

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	box.Sandbox
	p *Provider

	project   *compose.Project         // the plan; nil if another process started it
	images    map[string]compose.Image // by service
	ids       map[string]string        // image IDs by service
	arch      string                   // of the images
	preparing provider.PrepareOptions
	mounts    []wire.FileID    // identities of the spec's mounts, as checked
	changes   []compose.Change // made to the project
	services  []*service       // in the order of Services

	unwatch func() // stops watching a sandbox of another process; nil if this one started it

	folder     string // on this machine, see state.go; empty without a folder
	socketless bool   // nothing can be mounted from it
	subnets    []netip.Prefix
}

var (
	_ box.Body         = (*sandbox)(nil)
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
	maps.Copy(l, sb.Marks())
	return l
}

// serves reports whether main processes that are guests serve a host: this process, and for a kept sandbox later ones
// too.
func (sb *sandbox) serves() bool { return sb.p.opts.Transport == TransportGuest }

// direct reports whether commands and files use no program in the sandbox.
func (sb *sandbox) direct() bool { return sb.p.opts.Transport == TransportEngine }

// Admit waits until the limits on sandboxes allow one more.
func (sb *sandbox) Admit(ctx context.Context) (started, left func(), err error) {
	a := sb.p.admission
	return a.releaseStart, a.releaseSandbox, a.enter(ctx)
}

// Leave stops watching a kept sandbox, and closes the connections to it.
func (sb *sandbox) Leave() {
	sb.Disconnect()
	if sb.unwatch != nil {
		sb.unwatch()
	}
}

// Remove removes the sandbox's objects and its folder.
func (sb *sandbox) Remove(ctx context.Context) error {
	sb.Disconnect()
	ctx, cancel := context.WithTimeout(ctx, sb.p.opts.speedup.Of(removeTimeout))
	defer cancel()
	if err := sb.remove(ctx); err != nil {
		return sb.classifyTimeout(ctx, err)
	}
	return sb.removeFolder()
}

// abandon makes Close leave the daemon's objects, which belong to another sandbox. It removes the folder.
func (sb *sandbox) abandon() error {
	sb.Forget()
	return sb.removeFolder()
}

// classifyTimeout gives an error that our own deadline caused the class ErrInfrastructure. The caller has not canceled
// anything.
func (sb *sandbox) classifyTimeout(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return &fumehood.Error{
		Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("it was not removed within %v: %s", sb.p.opts.speedup.Of(removeTimeout), err.Error()),
		Hint: "close it again, or remove it with `fumehood cleanup` once the daemon answers",
	}
}

// alone reports whether the sandbox is only a container.
func (sb *sandbox) alone() bool {
	return sb.Spec.Compose == nil && sb.Spec.Network.Mode != fumehood.NetworkBridge
}

// remove removes the sandbox's objects. If the sandbox is more than a container, it finds them by their labels.
func (sb *sandbox) remove(ctx context.Context) error {
	if sb.alone() && len(sb.services) > 0 {
		return removeAll(ctx, sb.p.engine, []engine.Object{{Kind: engine.Container, ID: sb.services[0].id, Name: compose.ContainerName(sb.Spec.Name)}})
	}
	objects, err := sb.p.engine.Objects(ctx, owner.LabelSandbox+"="+sb.Spec.Name, engine.Container, engine.Network, engine.Volume)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(objects, func(o engine.Object) bool { return o.Labels[owner.LabelOwner] != sb.p.self.String() })
	if err := removeAll(ctx, sb.p.engine, own); err != nil {
		return err
	}
	sb.p.subnets.release(sb.subnets)
	sb.subnets = nil
	return nil
}

// nameTakenError returns the error for a name that another sandbox has.
func (sb *sandbox) nameTakenError() error {
	return &fumehood.Error{
		Class: fumehood.ErrConfig, Err: fmt.Errorf("a sandbox of that name exists already"),
		Hint: "choose another name, or remove it with `fumehood cleanup " + sb.Spec.Name + "`",
	}
}
