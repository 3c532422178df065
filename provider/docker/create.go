package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// subnetAttempts is how often create tries other subnets when another process took the chosen ones first.
const subnetAttempts = 10

// create makes the project's objects and adopts its containers. On an error, Close removes the objects made so far by
// their labels.
func (sb *sandbox) create(ctx context.Context, guest string) error {
	if err := sb.checkName(ctx); err != nil {
		return err
	}
	holds, err := sb.p.holds(ctx)
	if err != nil {
		return err
	}
	unheld := sb.unenforcedLimits(holds)
	sb.makeFolder(ctx)
	var mount error // set if the daemon may not see this machine's files
	for attempt := 1; ; attempt++ {
		if err := sb.plan(ctx, guest, unheld); err != nil {
			return err
		}
		if err := sb.checkLimits(holds); err != nil {
			return err
		}
		sb.writeProject()
		single := "" // the ID of the only image
		if sb.Spec.Compose == nil {
			single = sb.ids[compose.DefaultService]
		}
		err := sb.p.compose.Create(ctx, sb.project, single)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, engine.ErrMount) && sb.hasSockets():
			mount, sb.socketless = err, true
		case errors.Is(err, engine.ErrSubnet) && attempt < subnetAttempts:
			if err := sb.remove(ctx); err != nil { // releases the subnets too, so that others are chosen
				return err
			}
		case err != nil:
			return err
		default:
			if mount != nil {
				sb.p.noSockets(mount)
			}
			return sb.adopt(ctx)
		}
	}
}

// checkName rejects the name of an existing project. It also rejects a name if the project's networks and volumes have
// names that are in use, because Compose would use the existing ones. A sandbox that is only a container is not
// checked here, because it is faster to check the container after its creation.
func (sb *sandbox) checkName(ctx context.Context) error {
	if sb.alone() {
		return nil
	}
	objects, err := sb.p.engine.Objects(ctx, compose.ProjectLabel+"="+sb.Spec.Name, engine.Container, engine.Network, engine.Volume)
	if err != nil {
		return err
	}
	if len(objects) > 0 {
		return errors.Join(sb.nameTakenError(), sb.abandon())
	}
	objects, err = sb.p.engine.ListByPrefix(ctx, compose.OwnPrefix(sb.Spec.Name), engine.Network, engine.Volume)
	if err != nil {
		return err
	}
	own := sb.project.OwnNames()
	i := slices.IndexFunc(objects, func(o engine.Object) bool { return slices.Contains(own, o.Name) })
	if i < 0 {
		return nil
	}
	there := objects[i]
	return errors.Join(sb.abandon(), &fumehood.Error{
		Class: fumehood.ErrConfig, Err: fmt.Errorf("there is a %s %s, which the sandbox would use as its own", there.Kind, there.Name),
		Hint: fmt.Sprintf("choose another name for the sandbox, or remove it with `docker %s rm %s`", there.Kind, there.Name),
	})
}

// adopt takes over the created containers. It fails if one of them existed before.
func (sb *sandbox) adopt(ctx context.Context) error {
	var services []*service
	for _, s := range sb.project.Services() {
		var containers []engine.State
		for _, name := range s.Containers {
			state, err := sb.p.engine.Inspect(ctx, name)
			if err != nil {
				return err
			}
			if state.Labels[owner.LabelOwner] == sb.p.self.String() && !state.Running {
				if err := sb.p.knowRuntime(ctx, s, state.Runtime); err != nil {
					return err
				}
				containers = append(containers, state)
				continue
			}
			if !sb.alone() {
				return sb.nameTakenError() // Close removes the other objects
			}
			return errors.Join(sb.nameTakenError(), sb.abandon()) // the container is not ours to remove
		}
		svc := newService(sb, s, containers)
		if err := svc.checkIDs(ctx); err != nil {
			return err
		}
		if err := svc.checkHooks(ctx); err != nil {
			return err
		}
		services = append(services, svc)
	}
	sb.services, sb.Services = services, nil
	for _, s := range services {
		sb.Services = append(sb.Services, s.Service)
	}
	return nil
}

// Prepare makes the project of the spec, and makes sure that the daemon has all images.
func (sb *sandbox) Prepare(ctx context.Context) (err error) {
	if sb.Spec.Compose == nil {
		sb.project = compose.FromSpec(sb.Spec)
		i, err := sb.image(ctx)
		sb.images = map[string]compose.Image{compose.DefaultService: {Ref: cmp.Or(sb.Spec.Images[compose.DefaultService], sb.Spec.Image)}}
		sb.ids, sb.arch = map[string]string{compose.DefaultService: i.ID}, i.Arch
		return err
	}
	if sb.project, err = box.LoadProject(ctx, sb.Spec, sb.Rec); err != nil {
		return err
	}
	sb.p.life.LogFiles(sb.Spec, sb.project)
	if sb.project.AsksForRuntime() {
		if _, err := sb.p.runtimes(ctx); err != nil { // needed to check that a requested runtime isolates no less than the default
			return err
		}
	}
	if err := sb.checkRoutes(ctx); err != nil {
		return err
	}
	sources := sb.project.Sources()
	for service, refs := range sb.project.MountedImages() {
		for _, ref := range refs {
			if _, _, err := sb.p.builtin(ref); err != nil {
				return image.InService(err, service)
			}
		}
	}
	var images map[string]image.Image
	if sb.Spec.Images != nil {
		images, err = sb.p.images.FindPrepared(ctx, sources, sb.Spec.Images)
	} else {
		images, err = sb.p.images.Prepare(ctx, sources, sb.Spec.Compose, sb.preparing)
	}
	if err != nil {
		return err
	}
	sb.images, sb.ids = map[string]compose.Image{}, map[string]string{}
	first := ""
	for _, name := range slices.Sorted(maps.Keys(images)) {
		i := images[name]
		sb.images[name] = compose.Image{Ref: i.Ref, Entrypoint: i.Entrypoint, Command: i.Command}
		sb.ids[name] = i.ID
		switch {
		case i.Arch == "": // the image does not declare one
		case sb.arch == "":
			first, sb.arch = name, i.Arch
		case sb.arch != i.Arch:
			return &fumehood.Error{
				Op: "use image " + i.Ref, Service: name, Class: fumehood.ErrUnsupported,
				Err:  fmt.Errorf("image is for %s, but that of service %s is for %s", i.Arch, first, sb.arch),
				Hint: "use images for one architecture in all services of a project",
			}
		}
	}
	return nil
}

// image returns the image of a sandbox without a Compose project.
func (sb *sandbox) image(ctx context.Context) (image.Image, error) {
	if sb.Spec.Images == nil {
		return sb.p.images.Get(ctx, sb.Spec.Image)
	}
	return sb.p.images.FindID(ctx, compose.DefaultService, sb.Spec.Images)
}

// plan fits the project to the daemon.
func (sb *sandbox) plan(ctx context.Context, guest string, unheld compose.Unheld) error {
	if err := sb.chooseSubnets(ctx); err != nil {
		return err
	}
	pol := compose.Policy{
		Version: composesdk.Version(), Labels: sb.labels(), Volume: guest, Serve: sb.serves(), Sockets: sb.makeSockets, Limits: sb.Spec.Limits,
		Images: sb.images, Subnets: sb.subnets, ConfigFile: sb.projectFile(), Unheld: unheld,
		Runtime: sb.Spec.Runtime, Runtimes: sb.p.cachedRuntimes(),
	}
	if sb.direct() && sb.Spec.Compose != nil { // services run their own programs; without a project, the guest waits
		pol.Volume = ""
	}
	if err := sb.project.CheckPrograms(sb.images); err != nil {
		return err
	}
	sb.changes = sb.project.Apply(pol)
	return sb.checkForwards(sb.project.Services())
}

// logChanges logs what weakens the isolation. It also logs that the project's networks are internal, which users may
// not expect.
func (sb *sandbox) logChanges(ctx context.Context) {
	log := sb.p.life.LoggerOf(sb.Spec)
	if len(sb.project.Boundless(fumehood.DefaultMemory+1)) > 0 { // otherwise the daemon's memory is not needed
		if info, err := sb.p.info(ctx); err == nil {
			for _, name := range sb.project.Boundless(info.Memory) {
				log.Warn("the sandbox has no limit: the project's limit is the whole machine or more", "sandbox", sb.Spec.Name, "service", name, "limit", "memory")
			}
		}
	}
	switch {
	case !sb.project.Internal():
		log.Warn("the sandbox has a network", "sandbox", sb.Spec.Name, "egress", fumehood.EgressInternet)
	case len(sb.project.NetworksNeeded()) > 0:
		log.Info("the project's networks are internal: its services reach each other and nothing else", "sandbox", sb.Spec.Name)
	}
	provider.LogSeccomp(log, sb.Spec)
	sb.p.life.LogChanges(sb.Spec, sb.changes)
}
