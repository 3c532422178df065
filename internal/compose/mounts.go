package compose

import (
	"cmp"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood/internal/hostpath"
)

func (c *checking) mounts(svc *types.ServiceConfig) {
	at := of(svc, "volumes")
	for _, v := range svc.Volumes {
		switch v.Type {
		case types.VolumeTypeBind:
			c.bind(at, v)
		case types.VolumeTypeVolume:
			if d := c.as.Volumes[v.Source]; bool(d.External) {
				c.unsafe(at, v.Source, "the volume is not the sandbox's")
			}
			if v.Volume != nil {
				c.labels(append(slices.Clip(at), "labels"), types.Labels(v.Volume.Labels))
				c.subpath(at, v.Volume.Subpath)
			}
		case types.VolumeTypeImage:
			if v.Image != nil {
				c.subpath(at, v.Image.SubPath)
			}
		case types.VolumeTypeTmpfs:
		default:
			c.refuse(at, "cannot be honored: the Engine has no mounts of the type %q here", v.Type)
		}
		c.target(at, v.Target)
	}
	for _, t := range svc.Tmpfs {
		target, options, _ := strings.Cut(t, ":")
		c.target(of(svc, "tmpfs"), target)
		if options != "" {
			c.tmpfsOptions(of(svc, "tmpfs"), options)
		}
	}
	for _, from := range svc.VolumesFrom {
		if strings.HasPrefix(from, types.ContainerPrefix) {
			c.unsafe(of(svc, "volumes_from"), from, "this container is not the sandbox's")
		}
	}
}

// drive matches what Compose's short form takes for a Windows path.
var drive = regexp.MustCompile(`^[A-Za-z]:/`)

// target checks a mount point in a container. It must not hide the guest, and must be used only once, since the later
// of two mounts could change the earlier.
func (c *checking) target(at []string, target string) {
	clean := path.Clean(target)
	place := at[1] + " " + clean
	defer func() { c.taken[place] = true }()
	switch {
	case c.taken[place]:
		c.refuse(at, "something else is mounted at %s as well", clean)
	case drive.MatchString(target):
		c.refuse(at, "%q is read as a path of a Windows drive: for a volume of one letter use the long form, {type: volume, source: %s, target: %s}", target, target[:1], target[2:])
	case !path.IsAbs(target) || clean == "/":
		c.refuse(at, "wanted an absolute path in the container that is not its root, found %q", target)
	case clean == GuestDir || strings.HasPrefix(clean, GuestDir+"/"):
		c.refuse(at, "%s is reserved: Fumehood's guest is mounted at %s", target, GuestDir)
	}
}

// subpath checks the mounted subpath of a volume or image.
func (c *checking) subpath(at []string, sub string) {
	if sub != "" && !filepath.IsLocal(sub) {
		c.refuse(at, "the subpath %q leads out of the volume or image", sub)
	}
}

func (c *checking) bind(at []string, v types.ServiceVolumeConfig) {
	if v.Bind != nil && !slices.Contains([]string{"", "private", "rprivate", "slave", "rslave"}, v.Bind.Propagation) {
		c.unsafe(at, v.Bind.Propagation, "mounts in the container appear on the host")
	}
	if v.Bind != nil && !slices.Contains([]string{"", "enabled", "disabled", "readonly"}, v.Bind.Recursive) {
		c.unsafe(at, "recursive: "+v.Bind.Recursive, "mounts below a read-only one can be written")
	}
	if !c.rejectRelative(at, v.Source) {
		return
	}
	switch why := c.gate.Mount(v.Source, !v.ReadOnly); {
	case why == "":
	case v.ReadOnly && hostpath.Unsafe(v.Source, false) == "":
		c.outside(at, v.Source, why)
	default:
		c.unsafe(at, v.Source, why)
	}
}

// volume checks a volume of the project. External volumes are checked where they are mounted.
func (c *checking) volume(key string, v types.VolumeConfig) {
	if key == guestVolume {
		c.refuse([]string{"volumes", key}, "is the name of the guest's own volume: other services would run what one service writes there")
		return
	}
	at := func(keys ...string) []string { return append([]string{"volumes", key}, keys...) }
	if bool(v.External) {
		return
	}
	if v.Driver != "" && v.Driver != "local" {
		c.unsafe(at("driver"), v.Driver, "what this driver mounts is not known")
	}
	c.driverOpts(key, v)
	c.labels(at("labels"), v.Labels)
}

// harmlessTmpfs are the tmpfs options that affect only that file system. Other options are not harmless even with type
// tmpfs: the kernel ignores the type if there is bind, move or remount.
var harmlessTmpfs = []string{
	"size", "nr_blocks", "nr_inodes", "mode", "uid", "gid", "ro", "rw", "exec", "noexec", "nosuid", "nodev", "atime", "noatime",
	"nodiratime", "relatime", "strictatime", "sync", "async",
}

const mountsOfHost = "it mounts something of the host or its network, or changes such a mount"

// tmpfsOptions rejects options that harmlessTmpfs does not list.
func (c *checking) tmpfsOptions(at []string, options string) {
	if strings.ContainsFunc(options, unicode.IsControl) {
		c.refuse(at, "%q has a control character", options)
		return
	}
	for option := range strings.SplitSeq(options, ",") {
		if option, _, _ := strings.Cut(option, "="); !slices.Contains(harmlessTmpfs, option) {
			c.unsafe(at, option, mountsOfHost)
		}
	}
}

// driverOpts allows a tmpfs and a size. Everything else mounts something that the host has or can reach.
func (c *checking) driverOpts(key string, v types.VolumeConfig) {
	for _, name := range slices.Sorted(maps.Keys(v.DriverOpts)) {
		value, at := v.DriverOpts[name], []string{"volumes", key, "driver_opts", name}
		switch name {
		case "type", "device":
			if name == "device" && v.DriverOpts["o"] == "bind" && !c.rejectRelative(at, value) {
				continue
			}
			if value != "tmpfs" {
				c.unsafe(at, value, mountsOfHost)
			}
		case "o":
			if v.DriverOpts["type"] != "tmpfs" {
				c.unsafe(at, value, mountsOfHost)
				continue
			}
			c.tmpfsOptions(at, value)
		case "size":
		default:
			c.unsafe(at, value, "this option is not known to be harmless")
		}
	}
}

// file checks a secret or a config.
func (c *checking) file(at []string, f types.FileObjectConfig) {
	_, set := c.as.Environment[f.Environment]
	switch {
	case bool(f.External), f.Driver != "", f.TemplateDriver != "":
		c.refuse(at, "cannot be honored: it is for clusters; use file, environment or content")
	case f.Environment != "" && !set:
		c.refuse(append(at, "environment"), "the variable %s is not set; %s", f.Environment, OnlyNamed)
	case f.Environment != "" && c.as.Environment[f.Environment] == "":
		c.refuse(append(at, "environment"), "the variable %s is empty: no file is made from it", f.Environment)
	case f.File != "" && !c.rejectRelative(append(at, "file"), f.File):
	case f.File != "" && hostpath.Unsafe(f.File, false) != "":
		c.unsafe(append(at, "file"), f.File, hostpath.Unsafe(f.File, false))
	case f.File != "" && !c.gate.Inside(f.File):
		c.outside(append(at, "file"), f.File, "it is a file of the host outside of the project's folder")
	case f.File != "" && special(f.File):
		c.refuse(append(at, "file"), "%s is neither a regular file nor a folder", f.File)
	}
}

// special reports whether a path is a device, a pipe or a socket. Reading these could block or never end.
func special(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// files checks a service's references to secrets and configs. Secrets and configs with a file are mounted with the
// file's owner and mode. The others are copied into the container before it starts.
func (c *checking) files(svc *types.ServiceConfig) {
	use := func(kind, dir string, ref types.FileReferenceConfig, f types.FileObjectConfig) {
		at := of(svc, kind)
		target := cmp.Or(ref.Target, ref.Source)
		if !path.IsAbs(target) {
			target = path.Join(dir, target)
		}
		c.target(at, target)
		switch {
		case f.File != "" && (ref.UID != "" || ref.GID != "" || ref.Mode != nil):
			c.refuse(at, "%s: uid, gid and mode cannot be honored for a file, which is mounted as it is on the host; give its content by environment or content", ref.Source)
		case f.File == "" && svc.ReadOnly:
			c.refuse(at, "%s: cannot be honored in a read-only container, into which nothing can be copied; use a file", ref.Source)
		}
	}
	for _, s := range svc.Secrets {
		use("secrets", "/run/secrets", types.FileReferenceConfig(s), types.FileObjectConfig(c.as.Secrets[s.Source]))
	}
	for _, s := range svc.Configs {
		use("configs", "/", types.FileReferenceConfig(s), types.FileObjectConfig(c.as.Configs[s.Source]))
	}
}
