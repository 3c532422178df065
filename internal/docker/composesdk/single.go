package composesdk

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	sdk "github.com/docker/compose/v5/pkg/compose"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
)

// single returns how to create the container of a project that consists of it alone, as the SDK would create it. The SDK
// looks up objects of the project first, which takes six calls of the Engine more. single returns false for a project that has
// anything that it does not know. image is the ID of the container's image.
func single(project *compose.Project, image string) (c engine.NewContainer, ok bool) {
	p := project.Types()
	if len(p.Services) != 1 || len(p.Networks) > 0 || image == "" {
		return c, false
	}
	var svc types.ServiceConfig
	for _, svc = range p.Services {
	}
	mounts, ok := mountsOf(p, svc.Volumes)
	if !ok || svc.NetworkMode == "" || svc.StopGracePeriod == nil || svc.Logging == nil || !isKnown(svc) {
		return c, false
	}
	hash, err := sdk.ServiceHash(svc)
	if err != nil {
		return c, false
	}
	labels := maps.Clone(svc.Labels)
	maps.Copy(labels, svc.CustomLabels)
	labels[compose.HashLabel], labels[compose.NumberLabel], labels[compose.DependenciesLabel], labels[compose.ImageLabel] = hash, "1", "", image
	grace := int(time.Duration(*svc.StopGracePeriod).Seconds())
	var env []string
	for name, value := range svc.Environment {
		env = append(env, name+"="+*value)
	}
	slices.Sort(env)
	tmpfs := map[string]string{}
	for _, t := range svc.Tmpfs {
		dir, options, _ := strings.Cut(t, ":")
		tmpfs[dir] = options
	}
	host := &container.HostConfig{
		Mounts: mounts, Tmpfs: tmpfs, CapAdd: svc.CapAdd, CapDrop: svc.CapDrop, SecurityOpt: svc.SecurityOpt,
		NetworkMode: container.NetworkMode(svc.NetworkMode), RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyMode(svc.Restart)},
		ShmSize: int64(svc.ShmSize), Runtime: svc.Runtime, LogConfig: container.LogConfig{Type: svc.Logging.Driver, Config: svc.Logging.Options},
	}
	host.Memory, host.MemorySwap, host.NanoCPUs = int64(svc.MemLimit), int64(svc.MemSwapLimit), int64(svc.CPUS*1e9)
	if svc.PidsLimit != 0 {
		host.PidsLimit = &svc.PidsLimit
	}
	return engine.NewContainer{
		Name: project.Services()[0].Containers[0], Host: host,
		Config: &container.Config{
			User: svc.User, OpenStdin: svc.StdinOpen, AttachStdout: true, AttachStderr: true, Env: env, Cmd: []string(svc.Command), Image: svc.Image,
			WorkingDir: svc.WorkingDir, Entrypoint: []string(svc.Entrypoint), Labels: labels, StopSignal: svc.StopSignal, StopTimeout: &grace,
		},
	}, true
}

// isKnown reports whether single takes over all that is set in a service.
func isKnown(svc types.ServiceConfig) bool {
	for _, value := range svc.Environment {
		if value == nil {
			return false
		}
	}
	known := types.ServiceConfig{
		Name: svc.Name, Image: svc.Image, PullPolicy: svc.PullPolicy, Entrypoint: svc.Entrypoint,
		Command: svc.Command, User: svc.User, Runtime: svc.Runtime, WorkingDir: svc.WorkingDir, ShmSize: svc.ShmSize, Environment: svc.Environment,
		Labels: svc.Labels, CustomLabels: svc.CustomLabels, CapDrop: svc.CapDrop, CapAdd: svc.CapAdd, SecurityOpt: svc.SecurityOpt,
		Logging: svc.Logging, StopSignal: svc.StopSignal, StopGracePeriod: svc.StopGracePeriod, Restart: svc.Restart, Volumes: svc.Volumes,
		StdinOpen: svc.StdinOpen, MemLimit: svc.MemLimit, MemSwapLimit: svc.MemSwapLimit, CPUS: svc.CPUS, PidsLimit: svc.PidsLimit,
		Tmpfs: svc.Tmpfs, NetworkMode: svc.NetworkMode,
	}
	return svc.Restart == types.RestartPolicyNo && svc.PullPolicy == types.PullPolicyNever && reflect.DeepEqual(svc, known)
}

// mountsOf returns the mounts of external volumes and of paths that exist. It returns false if there are others.
func mountsOf(p *types.Project, volumes []types.ServiceVolumeConfig) (all []mount.Mount, ok bool) {
	for _, v := range volumes {
		m := mount.Mount{Type: mount.Type(v.Type), Source: v.Source, Target: v.Target, ReadOnly: v.ReadOnly}
		known := types.ServiceVolumeConfig{Type: v.Type, Source: v.Source, Target: v.Target, ReadOnly: v.ReadOnly, Bind: v.Bind, Volume: v.Volume}
		switch {
		case !reflect.DeepEqual(v, known):
			return nil, false
		case v.Type == types.VolumeTypeBind && v.Bind != nil && reflect.DeepEqual(*v.Bind, types.ServiceVolumeBind{}):
			m.BindOptions = &mount.BindOptions{}
		case v.Type == types.VolumeTypeVolume && bool(p.Volumes[v.Source].External) && v.Volume != nil && reflect.DeepEqual(*v.Volume, types.ServiceVolumeVolume{NoCopy: true}):
			m.Source, m.VolumeOptions = p.Volumes[v.Source].Name, &mount.VolumeOptions{NoCopy: true}
		default:
			return nil, false
		}
		all = append(all, m)
	}
	return all, true
}
