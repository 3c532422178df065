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

// Mounts are mounts as users request them. A relative host path is resolved against the workspace's root. Of two
// mounts at the same container path, the later takes precedence.
type Mounts []fumehood.Mount

// ParseMount parses a mount in the form of a spec. Target is an absolute path in the container, with an optional
// :ro or :rw; the default is read-only. Its errors are fumehood.ErrConfig.
func ParseMount(host, target string) (fumehood.Mount, error) {
	if host == "" || !forms["target"].Takes(target) {
		return fumehood.Mount{}, mountError(OriginSpawn, "wanted a path of the host and %s, found %q and %q", forms["target"].What(), host, target)
	}
	var m mountTarget
	m.Bind, m.Mode, _ = strings.Cut(target, ":")
	return m.mount(host), nil
}

func (t mountTarget) mount(host string) fumehood.Mount {
	return fumehood.Mount{Host: host, Container: t.Bind, Writable: t.Mode == "rw"}
}

// Origin is the source of a mount.
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

// VolumeLayers holds everything to mount in a container.
type VolumeLayers struct {
	// Workspace is the absolute path of the workspace's root on the host.
	Workspace string
	// Docker defines the workspace's mount by Workdir and MountWorkspace, and holds the spec's ExtraMounts.
	Docker Docker
	// Spawn holds the mounts given at spawn.
	Spawn Mounts
	// AssetDir is the absolute path of the host folder that the assets' paths are relative to.
	AssetDir string
	// Assets are the static assets, by name.
	Assets map[string]Asset
}

// Merge returns the mounts of a container: the workspace, the spec's mounts, those given at spawn and the static
// assets, in this order. For the same container path, the later takes precedence. Merge does not access files. It
// rejects a spec or spawn mount strictly below the working directory: Docker would create its mount point in the
// workspace, as root. Its errors are fumehood.ErrConfig.
func (l VolumeLayers) Merge() ([]Volume, error) {
	if !filepath.IsAbs(l.Workspace) || len(l.Assets) > 0 && !filepath.IsAbs(l.AssetDir) {
		return nil, mountError(OriginSpawn, "wanted absolute paths of the workspace and the assets, found %q and %q", l.Workspace, l.AssetDir)
	}
	d := l.Docker.WithDefaults()
	d.Workdir = path.Clean(d.Workdir)
	var all []Volume
	if *d.MountWorkspace {
		all = append(all, Volume{fumehood.Mount{Host: l.Workspace, Container: d.Workdir, Writable: true}, OriginWorkspace})
	}
	fromSpec, err1 := l.requestedVolumes(d.ExtraMounts, OriginSpec, d.Workdir)
	fromSpawn, err2 := l.requestedVolumes(l.Spawn, OriginSpawn, d.Workdir)
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

// requestedVolumes returns the volumes for requested mounts, each checked.
func (l VolumeLayers) requestedVolumes(mounts Mounts, origin Origin, workdir string) ([]Volume, error) {
	var volumes []Volume
	var errs []error
	for _, m := range mounts {
		target := m.Container
		m.Container = path.Clean(target)
		switch {
		case m.Host == "" || !path.IsAbs(target) || m.Container == "/":
			errs = append(errs, mountError(origin, "%s: the mount %q to %q needs a path of the host and an absolute path in the container that is not its root", origin, m.Host, target))
		case strings.HasPrefix(m.Container, strings.TrimSuffix(workdir, "/")+"/"):
			errs = append(errs, mountError(origin, "%s: the mount %q to %q lies below the working directory %s; mount it elsewhere, or put the files in the workspace", origin, m.Host, target, workdir))
		}
		if !filepath.IsAbs(m.Host) {
			m.Host = filepath.Join(l.Workspace, m.Host)
		}
		m.Host = filepath.Clean(m.Host)
		volumes = append(volumes, Volume{m, origin})
	}
	return volumes, errors.Join(errs...)
}

// MountsOf returns the mounts of the volumes in the form for a provider.
func MountsOf(volumes []Volume) []fumehood.Mount {
	var mounts []fumehood.Mount
	for _, v := range volumes {
		mounts = append(mounts, v.Mount)
	}
	return mounts
}

// CheckHosts checks that the volumes' host paths exist, because Docker would create missing ones as root. A path
// in the workspace must not lead out of it by a symbolic link: a process that has written to the workspace could
// otherwise choose what the host mounts. The result holds until the mount only if nothing writes to the
// workspace. For this reason sessions mount copies of parts of the workspace. Its errors are fumehood.ErrConfig.
func CheckHosts(workspace string, volumes []Volume) error {
	var errs []error
	for _, v := range volumes {
		if err := checkHost(workspace, v.Host); err != nil {
			errs = append(errs, mountError(v.Origin, "%s: the mount of %s to %s: %w", v.Origin, v.Host, v.Container, err))
		}
	}
	return errors.Join(errs...)
}

func checkHost(workspace, host string) error {
	there, err := filepath.EvalSymlinks(host)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no such path on this machine; create it first")
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

// checkMounts checks the mounts that the environment's file requests. The provider checks mounts from code or
// flags. Allowed unsafe mounts are added to notes, unless the provider logs them too.
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
		already := *e.Docker.MountWorkspace && own.Inside(v.Host) // the workspace is writable anyway
		why := gate.Mount(v.Host, v.Writable && !already)
		switch {
		case why == "":
		case e.AllowUnsafe && (v.Writable || hostpath.Unsafe(v.Host, false) != ""): // logged by the provider
		case e.AllowUnsafe:
			*notes = append(*notes, fmt.Sprintf("the mount of %s is not safe, but allowed: %s", v.Host, why))
		default:
			hint := "mount another path, or allow it (--allow-unsafe)"
			if !v.Writable && hostpath.Unsafe(v.Host, false) == "" {
				hint = "mount another path, or allow it (--allow-read)"
			}
			errs = append(errs, &fumehood.Error{
				Op: "merge mounts", Class: fumehood.ErrFile, Err: fmt.Errorf("%s: the mount of %s to %s is not safe: %s", v.Origin, v.Host, v.Container, why),
				Hint: hint,
			})
		}
	}
	return errors.Join(errs...)
}

// gate returns a gate that accepts the paths that the environment's file may name: those in its folder, in the
// workspace, or allowed.
func (e *Environment) gate(more ...string) (hostpath.Gate, error) {
	return hostpath.NewGate("the spec's folder", filepath.Dir(e.File), slices.Concat(more, e.AllowRead)...)
}

// within reports whether p is dir or below it. It only compares names.
func within(dir, p string) bool {
	rel, err := filepath.Rel(dir, p)
	return err == nil && filepath.IsLocal(rel)
}

func mountError(origin Origin, format string, a ...any) error {
	class := fumehood.ErrConfig
	if origin == OriginSpec {
		class = fumehood.ErrFile
	}
	return &fumehood.Error{Op: "merge mounts", Class: class, Err: fmt.Errorf(format, a...)}
}
