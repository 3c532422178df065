package spec

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// SandboxOptions are the settings of a sandbox in addition to its environment.
type SandboxOptions struct {
	// Volumes are the mounts; its Docker field is replaced by the environment's. Under type local its Workspace
	// is the working directory, and the provider decides about its Spawn.
	Volumes VolumeLayers
	// Ports are added to the environment's, and replace those for the same port.
	Ports Ports
	// Env takes precedence over the environment's variables, and those over Host. Host has the form of
	// os.Environ, and is used only with include_os_env.
	Env  map[string]string
	Host []string
	// Image, User and Network take precedence over the environment's.
	Image, User, Network string
	// GOOS is the system that Fumehood runs on: the host's network exists only on some.
	GOOS string
}

// checkIsolation rejects settings that break the isolation of a container, unless the user allows them. It does
// not check mounts.
func (e Environment) checkIsolation(o SandboxOptions) error {
	if e.AllowUnsafe {
		return nil
	}
	var errs []error
	if o.Network == "" {
		errs = append(errs, CheckNetwork("docker.network", e.Docker.Network))
	}
	errs = append(errs, CheckSeccomp("docker.seccomp", e.Docker.Seccomp))
	if e.Environment.IncludeOSEnv {
		errs = append(errs, &fumehood.Error{
			Class: fumehood.ErrFile, Err: errors.New("environment.include_os_env: passes this machine's variables, with any secrets in them, to the sandbox"),
			Hint: "pass the needed variables with --env, or allow it (--allow-unsafe)",
		})
	}
	return errors.Join(errs...)
}

// Sandbox returns the spec of the sandbox that the environment describes, without its setup. Notes are messages
// to be logged: about what weakens isolation, and about what differs from the environment. Its errors are
// fumehood.ErrConfig, and ErrUnsupported for ports under type local.
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
				Class: fumehood.ErrUnsupported, Err: errors.New("type local cannot publish ports"),
				Hint: "leave them out: servers listen on this machine itself",
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
		notes = append(notes, "containers have the network of this machine: "+e.File+" requests it")
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
	if err == nil {
		err = d.checkTmpfs()
	}
	if err != nil {
		return fumehood.Spec{}, notes, err
	}
	s.AllowUnsafe, s.Runtime, s.Seccomp, s.ShmSize, s.Tmpfs = e.AllowUnsafe, d.Runtime, d.Seccomp, d.ShmSize, slices.Clone(d.Tmpfs)
	s.Network, s.Mounts, s.Limits, s.Dir = fumehood.Network{Mode: mode}, MountsOf(volumes), fumehood.Limits(e.Limits), path.Clean(d.Workdir)
	if s.Image == "" {
		if s.Image, err = e.image(); err != nil {
			return fumehood.Spec{}, notes, err
		}
	}
	s.User, s.Binary = cmp.Or(s.User, d.User), d.Binary
	return s, notes, nil
}

// image returns the environment's image. If a file has set it, the path of an image that is a file must be in that file's
// folder or be allowed, and is made absolute.
func (e Environment) image() (string, error) {
	if e.File == "" { // it is set by code
		return e.Docker.Image, nil
	}
	dir, err := filepath.Abs(filepath.Dir(e.File))
	if err != nil {
		return "", err
	}
	gate, err := e.gate()
	if err != nil {
		return "", err
	}
	image, err := gate.Image(e.Docker.Image, dir)
	if err != nil {
		return "", &fumehood.Error{Class: fumehood.ErrFile, Err: fmt.Errorf("docker.image: %w", err)}
	}
	return image, nil
}

// CheckSeccomp returns an ErrFile for a seccomp profile, which a file may choose only if the user allows what is unsafe. Key
// is the file's key for it.
func CheckSeccomp(key, profile string) error {
	if profile == "" {
		return nil
	}
	return &fumehood.Error{
		Class: fumehood.ErrFile, Err: fmt.Errorf("%s: %s: it allows more system calls than Fumehood's own profile", key, profile),
		Hint: "choose it yourself (--seccomp " + profile + "), or allow it (--allow-unsafe)",
	}
}

// checkTmpfs rejects a file system in memory strictly below the mounted workspace: Docker would create its mount point in
// the workspace, as root. d has its defaults.
func (d Docker) checkTmpfs() error {
	for _, text := range d.Tmpfs {
		t, _ := fumehood.ParseTmpfs(text) // the form was checked
		if *d.MountWorkspace && strings.HasPrefix(t.Container, strings.TrimSuffix(path.Clean(d.Workdir), "/")+"/") {
			return &fumehood.Error{
				Op: "docker.tmpfs", Class: fumehood.ErrConfig, Err: fmt.Errorf("%s lies below the working directory %s", t.Container, path.Clean(d.Workdir)),
				Hint: "mount it elsewhere",
			}
		}
	}
	return nil
}
