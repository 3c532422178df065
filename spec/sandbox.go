package spec

import (
	"cmp"
	"errors"
	"path"
	"strings"

	"github.com/fumehood/fumehood"
)

// SandboxOptions are what a sandbox of an environment has beside what the environment says.
type SandboxOptions struct {
	// Volumes says what is mounted; its Docker is the environment's, whatever it holds. Under type local its
	// Workspace is the working directory, and the provider decides about its Spawn.
	Volumes VolumeLayers
	// Ports replace the environment's where they are for the same port.
	Ports Ports
	// Env wins over the environment's variables, and those over Host, which is as by os.Environ and counts only
	// with include_os_env.
	Env  map[string]string
	Host []string
	// Image, User and Network go before the environment's.
	Image, User, Network string
	// GOOS is what Fumehood runs on; not everywhere there is a host's network.
	GOOS string
}

// checkIsolation refuses what breaks the isolation of a container, mounts aside, unless the user allows it.
func (e Environment) checkIsolation(o SandboxOptions) error {
	if e.AllowUnsafe {
		return nil
	}
	var errs []error
	if o.Network == "" {
		errs = append(errs, CheckNetwork("docker.network", e.Docker.Network))
	}
	if e.Environment.IncludeOSEnv {
		errs = append(errs, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: errors.New("environment.include_os_env: the variables of this machine, and the keys in them, would be in the sandbox"),
			Hint: "name those that are needed with --env, or allow it with AllowUnsafe, --allow-unsafe",
		})
	}
	return errors.Join(errs...)
}

// Sandbox is the sandbox that the environment describes, without its set-up. Notes are what is to be logged of what
// loosens the isolation, or is not as the environment says. Its errors are fumehood.ErrConfig, and ErrUnsupported for
// ports under type local.
func (e Environment) Sandbox(o SandboxOptions) (s fumehood.Spec, notes []string, err error) {
	env, passed := e.Environment.Merge(o.Host, o.Env, nil)
	if len(passed) > 0 {
		notes = append(notes, "variables of this machine are passed on: "+strings.Join(passed, " "))
	}
	s = fumehood.Spec{Env: env, Image: o.Image, User: o.User}
	if e.Type == TypeLocal {
		s.Dir, s.Limits, s.Mounts = o.Volumes.Workspace, fumehood.Limits(e.Limits), o.Volumes.Spawn
		if len(o.Ports) > 0 {
			return s, notes, &fumehood.Error{
				Class: fumehood.ErrUnsupported, Err: errors.New("under type local no ports are published"),
				Hint: "leave them out: what listens, listens on this machine",
			}
		}
		return s, notes, nil
	}
	e = e.WithDefaults()
	if err := e.checkIsolation(o); err != nil {
		return fumehood.Spec{}, notes, err
	}
	d := e.Docker
	d.Network = cmp.Or(o.Network, d.Network)
	mode, warning := EffectiveNetworkMode(d.Network, o.GOOS)
	if warning != "" {
		notes = append(notes, warning)
	}
	if mode == fumehood.NetworkHost {
		notes = append(notes, "containers have the network of this machine, for "+e.File+" says so")
	}
	ports, note, err := MergePorts(mode, d.Ports, o.Ports)
	if err != nil {
		return fumehood.Spec{}, notes, err
	}
	if note != "" {
		notes = append(notes, note)
	}
	for _, p := range ports {
		s.Ports = append(s.Ports, fumehood.Port{Host: int(p.Host), Container: int(p.Container)})
	}
	o.Volumes.Docker = d
	volumes, err := o.Volumes.Merge()
	if err == nil {
		err = CheckHosts(o.Volumes.Workspace, volumes)
	}
	if err == nil {
		err = e.checkMounts(o.Volumes.Workspace, volumes, &notes)
	}
	if err != nil {
		return fumehood.Spec{}, notes, err
	}
	s.AllowUnsafe, s.Runtime = e.AllowUnsafe, d.Runtime
	s.Network, s.Mounts, s.Limits, s.Dir = fumehood.Network{Mode: mode}, MountsOf(volumes), fumehood.Limits(e.Limits), path.Clean(d.Workdir)
	s.Image, s.User, s.Binary = cmp.Or(s.Image, d.Image), cmp.Or(s.User, d.User), d.Binary
	return s, notes, nil
}
