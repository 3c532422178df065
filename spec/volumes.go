package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// Mounts are mounts as users ask for them: a relative host path starts at the workspace's root. Of two
// at the same container path the later wins.
type Mounts []fumehood.Mount

// ParseMount reads a mount as a spec has it: target is an absolute path in the container, with :ro or
// :rw behind it if wanted, read-only if not. Its errors are fumehood.ErrConfig.
func ParseMount(host, target string) (fumehood.Mount, error) {
	if host == "" || !forms["target"].Takes(target) {
		return fumehood.Mount{}, mountError("wanted a path of the host and %s, found %q and %q", forms["target"].What(), host, target)
	}
	var m mountTarget
	m.Bind, m.Mode, _ = strings.Cut(target, ":")
	return m.mount(host), nil
}

func (t mountTarget) mount(host string) fumehood.Mount {
	return fumehood.Mount{Host: host, Container: t.Bind, Writable: t.Mode == "rw"}
}

// Origin says who asked for a mount.
type Origin string

// The origins, in the order in which their mounts are merged.
const (
	OriginWorkspace Origin = "workspace"
	OriginSpec      Origin = "extra_mounts"
	OriginSpawn     Origin = "spawn"
	OriginAsset     Origin = "static asset"
)

// Volume is one mount of a container: its host path is absolute and its container path is clean.
type Volume struct {
	fumehood.Mount
	Origin Origin
}

// VolumeLayers is all that is to be mounted in a container.
type VolumeLayers struct {
	// Workspace is the absolute path of the workspace's root on the host.
	Workspace string
	// Docker says with Workdir and MountWorkspace where the workspace is mounted, and holds the spec's
	// ExtraMounts.
	Docker Docker
	// Spawn holds the mounts that were given at spawn.
	Spawn Mounts
	// AssetDir is the absolute path of the folder on the host that the assets' paths start at.
	AssetDir string
	// Assets are the static assets, by name.
	Assets map[string]Asset
}

// Merge decides what is mounted: the workspace, the spec's mounts, those given at spawn and the static
// assets, in this order, of which the later wins for the same container path. It looks at no file. A
// spec or spawn mount strictly below the working directory is refused: Docker would make its mount
// point in the workspace, as root. Its errors are fumehood.ErrConfig.
func (l VolumeLayers) Merge() ([]Volume, error) {
	if !filepath.IsAbs(l.Workspace) || len(l.Assets) > 0 && !filepath.IsAbs(l.AssetDir) {
		return nil, mountError("wanted absolute paths of the workspace and the assets, found %q and %q", l.Workspace, l.AssetDir)
	}
	d := l.Docker.WithDefaults()
	d.Workdir = path.Clean(d.Workdir)
	var all []Volume
	if *d.MountWorkspace {
		all = append(all, Volume{fumehood.Mount{Host: l.Workspace, Container: d.Workdir, Writable: true}, OriginWorkspace})
	}
	fromSpec, err1 := l.asked(d.ExtraMounts, OriginSpec, d.Workdir)
	fromSpawn, err2 := l.asked(l.Spawn, OriginSpawn, d.Workdir)
	assets, err3 := MergeAssets(l.Assets)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	all = append(append(all, fromSpec...), fromSpawn...)
	for _, name := range slices.Sorted(maps.Keys(assets)) {
		a := assets[name]
		all = append(all, Volume{fumehood.Mount{Host: filepath.Join(l.AssetDir, filepath.FromSlash(a.Path)), Container: a.ContainerPath()}, OriginAsset})
	}
	last := map[string]int{}
	for i, v := range all {
		last[v.Container] = i
	}
	var merged []Volume
	for i, v := range all {
		if last[v.Container] == i {
			merged = append(merged, v)
		}
	}
	return merged, nil
}

// asked are the volumes that users ask for, each checked.
func (l VolumeLayers) asked(mounts Mounts, origin Origin, workdir string) ([]Volume, error) {
	var volumes []Volume
	var errs []error
	for _, m := range mounts {
		said := m.Container
		m.Container = path.Clean(said)
		switch {
		case m.Host == "" || !path.IsAbs(said) || m.Container == "/":
			errs = append(errs, mountError("%s: the mount %q to %q needs a path of the host and an absolute path in the container that is not its root", origin, m.Host, said))
		case strings.HasPrefix(m.Container, strings.TrimSuffix(workdir, "/")+"/"):
			errs = append(errs, mountError("%s: the mount %q to %q lies below the working directory %s; mount it elsewhere, or put the files in the workspace", origin, m.Host, said, workdir))
		}
		if !filepath.IsAbs(m.Host) {
			m.Host = filepath.Join(l.Workspace, m.Host)
		}
		m.Host = filepath.Clean(m.Host)
		volumes = append(volumes, Volume{m, origin})
	}
	return volumes, errors.Join(errs...)
}

// MountsOf are the volumes as a provider takes them.
func MountsOf(volumes []Volume) []fumehood.Mount {
	var mounts []fumehood.Mount
	for _, v := range volumes {
		mounts = append(mounts, v.Mount)
	}
	return mounts
}

// CheckHosts looks whether the volumes' host paths are there, for Docker would make what is missing as
// root. A path within the workspace must not lead out of it by a symbolic link: whoever has written in
// the workspace could choose what the host mounts. Only while nothing writes in the workspace is that
// certain to hold until the mount, so that sessions mount copies of what is in it. Its errors are fumehood.ErrConfig.
func CheckHosts(workspace string, volumes []Volume) error {
	var errs []error
	for _, v := range volumes {
		if err := checkHost(workspace, v.Host); err != nil {
			errs = append(errs, mountError("%s: the mount of %s to %s: %w", v.Origin, v.Host, v.Container, err))
		}
	}
	return errors.Join(errs...)
}

func checkHost(workspace, host string) error {
	there, err := filepath.EvalSymlinks(host)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such path on this machine; make it first")
	} else if err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		return err
	}
	if (within(workspace, host) || within(root, host)) && !within(root, there) {
		return errors.New("a symbolic link leads out of the workspace")
	}
	return nil
}

// checkMounts judges the mounts that the environment's file asks for. Those that code or flags ask for are the
// provider's to judge. What is allowed as unsafe it notes, but for what the provider logs too.
func (e *Environment) checkMounts(workspace string, volumes []Volume, notes *[]string) error {
	gate, err := e.gate(workspace)
	if err != nil {
		return err
	}
	own, err := hostpath.NewGate("the workspace", workspace)
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range volumes {
		if v.Origin != OriginSpec {
			continue
		}
		already := *e.Docker.MountWorkspace && own.Inside(v.Host) // the workspace itself is writable
		why := gate.Mount(v.Host, v.Writable && !already)
		switch {
		case why == "":
		case e.AllowUnsafe && (v.Writable || hostpath.Unsafe(v.Host, false) != ""): // the provider logs it
		case e.AllowUnsafe:
			*notes = append(*notes, fmt.Sprintf("the mount of %s is not safe, and allowed: %s", v.Host, why))
		default:
			errs = append(errs, &fumehood.Error{
				Op: "merge mounts", Class: fumehood.ErrConfig, Err: fmt.Errorf("%s: the mount of %s to %s is not safe: %s", v.Origin, v.Host, v.Container, why),
				Hint: "mount another path, or allow it with AllowUnsafe, --allow-unsafe; one to be read with AllowRead, --allow-read",
			})
		}
	}
	return errors.Join(errs...)
}

// gate lets pass the paths that the environment's file may name: those in its folder, in the workspace, or allowed.
func (e *Environment) gate(more ...string) (hostpath.Gate, error) {
	return hostpath.NewGate("the spec's folder", filepath.Dir(e.File), slices.Concat(more, e.AllowRead)...)
}

// within says whether p is dir or lies below it, by their names alone.
func within(dir, p string) bool {
	rel, err := filepath.Rel(dir, p)
	return err == nil && filepath.IsLocal(rel)
}

func mountError(format string, a ...any) error {
	return &fumehood.Error{Op: "merge mounts", Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
}
