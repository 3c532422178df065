package server

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/workspace"
)

// The flags that permit more, see Permit.
const (
	flagEgress   = "allow-egress"
	flagUnsafe   = "allow-unsafe"
	flagKept     = "allow-kept"
	flagHostPath = "allow-host-path"
	flagImage    = "allow-image"
)

// Permit is what clients may request beyond sandboxes that reach nothing outside. The zero value permits nothing more.
type Permit struct {
	// Egress permits networks with access to the outside, and Compose projects, which can have one by their files and
	// whose builds have one.
	Egress bool
	// Unsafe permits what breaks the isolation, and sandboxes without limits, such as kept ones that do not expire.
	Unsafe bool
	// Kept permits sandboxes that outlive their lease, and access to all kept ones of this user.
	Kept bool
	// HostPaths are folders and files of this machine that clients may name, for mounts, project files and images.
	HostPaths []string
	// Images are patterns of images, as of path.Match. Empty permits every image.
	Images []string
}

// check returns an error for a spec that the lease's client may not start. See Permit.check. The images that it runs by ID must
// have been prepared for the lease, so that each was permitted by its name.
func (l *lease) check(spec *fumehood.Spec, own ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for service, id := range spec.Images {
		if !l.prepared[id] {
			why := fmt.Sprintf("the image %q of the service %q was not prepared for this lease: prepare it by POST /v1/images", id, service)
			return newAnswer(http.StatusGone, api.CodeStale, "check request", why)
		}
	}
	return l.s.opts.Permit.check(spec, l.s.opts.Limits, own...)
}

// prepare prepares the images of a spec that the lease's client may start, and remembers their IDs.
func (l *lease) prepare(ctx context.Context, p provider.Preparer, spec fumehood.Spec, opts provider.PrepareOptions) (map[string]string, error) {
	ids, err := p.Prepare(ctx, spec, opts)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.prepared[id] = true
	}
	return ids, err
}

// check returns an error for a spec that a client may not start. It lowers a default limit to the server's own. Own are
// further paths that may be mounted.
func (p *Permit) check(spec *fumehood.Spec, limits Limits, own ...string) error {
	const unsafe = "start the server with --allow-unsafe"
	switch {
	case !p.Unsafe && spec.AllowUnsafe:
		return unauthorizedError(flagUnsafe, unsafe, "allow_unsafe is not allowed")
	case !p.Unsafe && spec.Runtime != "":
		return unauthorizedError(flagUnsafe, unsafe, "the runtime is the server's choice")
	case !p.Unsafe && spec.Seccomp != "":
		return unauthorizedError(flagUnsafe, unsafe, "the seccomp profile is the server's choice")
	case !p.Unsafe && (spec.Limits.Memory == fumehood.NoLimit || spec.Limits.PIDs == fumehood.NoLimit):
		return unauthorizedError(flagUnsafe, unsafe, "a sandbox without limits is not allowed")
	case !p.Unsafe && !slices.Contains([]string{"", fumehood.NetworkNone, fumehood.NetworkBridge}, spec.Network.Mode):
		return unauthorizedError(flagUnsafe, unsafe, "the network %q is not the sandbox's own", spec.Network.Mode)
	case !p.Egress && !spec.Network.IsNone():
		return unauthorizedError(flagEgress, "start the server with --allow-egress", "a network is not allowed")
	case !p.Kept && spec.Keep:
		return unauthorizedError(flagKept, "start the server with --allow-kept", "kept sandboxes are not allowed")
	case spec.Keep && spec.TTL <= 0 && !p.Unsafe:
		return bad("a kept sandbox needs a ttl_ms")
	}
	if most := limits.Memory; most > 0 {
		switch memory := spec.Limits.Memory; {
		case memory == 0:
			spec.Limits.Memory = min(most, fumehood.DefaultMemory)
		case memory > most || memory == fumehood.NoLimit:
			return limitError("check request", "max-memory", "start the server with a higher --max-memory", "a sandbox may have %d bytes of memory", most)
		}
	}
	var paths []string
	for _, m := range spec.Mounts {
		if !m.Workspace { // only a session sets it, for its own files
			paths = append(paths, m.Host)
		}
	}
	if c := spec.Compose; c != nil {
		if err := p.checkProject(c); err != nil {
			return err
		}
		for _, more := range [][]string{c.Files, c.EnvFiles, c.AllowRead, {folderOf(c), c.Dockerfile}} {
			paths = append(paths, more...)
		}
	} else if err := p.checkImage(spec.Image); err != nil {
		return err
	}
	return p.checkPaths(paths, own...)
}

// folderOf returns the folder of a project, in which it may read and mount everything. It is empty if there is none.
func folderOf(c *fumehood.Compose) string {
	switch {
	case c.Dir != "" || c.Content != "":
		return c.Dir
	case c.Dockerfile != "":
		return filepath.Dir(c.Dockerfile)
	case len(c.Files) > 0:
		return filepath.Dir(c.Files[0])
	}
	return ""
}

func (p *Permit) checkProject(c *fumehood.Compose) error {
	switch {
	case !p.Egress:
		return unauthorizedError(flagEgress, "start the server with --allow-egress", "builds and Compose projects are not allowed: their steps and services can have a network")
	case len(p.Images) > 0:
		return unauthorizedError(flagImage, "start the server without --allow-image", "builds and Compose projects are not allowed: their images are not known")
	case !p.Unsafe && c.AllowUnsafe:
		return unauthorizedError(flagUnsafe, "start the server with --allow-unsafe", "allow_unsafe is not allowed")
	case len(c.HostEnv) > 0:
		return unauthorizedError("", "set env instead", "variables of the server's process are not allowed")
	}
	return nil
}

// image reports whether an image is permitted. Without a name it is the server's default.
func (p *Permit) image(name string) bool {
	return name == "" || len(p.Images) == 0 || slices.ContainsFunc(p.Images, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// checkImage returns an error for an image that clients may not name. The path of one that is a file or folder is a path of
// this machine.
func (p *Permit) checkImage(name string) error {
	if !p.image(name) {
		return unauthorizedError(flagImage, "start the server with another --allow-image", "the image %q is not allowed", name)
	}
	_, path, _ := hostpath.OfImage(name)
	return p.checkPaths([]string{path})
}

// checkBuild returns an error if a client may not build images.
func (p *Permit) checkBuild() error {
	switch {
	case !p.Egress:
		return unauthorizedError(flagEgress, "start the server with --allow-egress", "builds are not allowed: their steps have a network")
	case len(p.Images) > 0:
		return unauthorizedError(flagImage, "start the server without --allow-image", "builds are not allowed: their base images are not known")
	}
	return nil
}

// checkWorkspace returns an error for limits of a workspace above the default ones, which bound what a session takes of the
// disk.
func (p *Permit) checkWorkspace(limits *api.WorkspaceLimits) error {
	if limits == nil || p.Unsafe {
		return nil
	}
	over := func(n, most int64) bool { return n < 0 || n > most }
	most := workspace.Limits{}.WithDefaults()
	if over(limits.Bytes, most.Bytes) || over(limits.Stored, most.Stored) || over(int64(limits.Entries), int64(most.Entries)) {
		return unauthorizedError(flagUnsafe, "start the server with --allow-unsafe", "limits of a workspace above the default ones are not allowed")
	}
	return nil
}

// checkPaths checks paths of this machine. Own are permitted too.
func (p *Permit) checkPaths(paths []string, own ...string) error {
	const hint = "start the server with --allow-host-path"
	permitted := append(own, p.HostPaths...) //nolint:gocritic // own is the call's
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == "" })
	if len(paths) == 0 {
		return nil
	}
	if len(permitted) == 0 {
		return unauthorizedError(flagHostPath, hint, "the path %q of the server's machine is not allowed", paths[0])
	}
	gate, err := hostpath.NewGate("the paths that are allowed", permitted[0], permitted[1:]...)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if !gate.Inside(path) {
			return unauthorizedError(flagHostPath, hint, "the path %q of the server's machine is not allowed", path)
		}
	}
	return nil
}
