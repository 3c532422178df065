package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/wire"
)

// checkMounts rejects mounts that are not allowed. It returns the identities of the files that it checked. verifyMounts
// needs them, because the Engine looks the paths up again.
func (p *Provider) checkMounts(spec fumehood.Spec) ([]wire.FileID, error) {
	ids := make([]wire.FileID, len(spec.Mounts))
	for i, m := range spec.Mounts {
		file, why, err := hostpath.Mountable(m.Host, m.Writable) // an error if it is missing: Docker would create it, as root
		if why != "" && !spec.AllowUnsafe {
			return nil, &fumehood.Error{
				Op: "mount " + m.Host, Class: fumehood.ErrConfig, Err: fmt.Errorf("this is not safe: %s", why),
				Hint: "mount another path, or allow it (--allow-unsafe)",
			}
		}
		if err = cmp.Or(p.mountable(m), err); err == nil {
			ids[i], err = identity(file)
		}
		if err != nil {
			return nil, &fumehood.Error{Op: "mount " + m.Host, Class: fumehood.ErrConfig, Err: err, Hint: p.mountHint()}
		}
	}
	return ids, nil
}

// mountable returns an error if the daemon cannot mount anything, or not there.
func (p *Provider) mountable(m fumehood.Mount) error {
	if !p.engine.Local() {
		return fmt.Errorf("the daemon at %s does not see this machine's files", p.engine.Endpoint())
	}
	if m.Container == compose.GuestDir || strings.HasPrefix(m.Container, compose.GuestDir+"/") {
		return fmt.Errorf("%s is reserved for Fumehood", compose.GuestDir)
	}
	return nil
}

// identity returns the identity of a file on this machine. It is zero on systems other than Linux, where containers run
// in a virtual machine.
func identity(f hostpath.File) (id wire.FileID, err error) {
	if f.Inode == 0 {
		return id, nil
	}
	boot, err := os.ReadFile(wire.BootID)
	return wire.FileID{Boot: strings.TrimSpace(string(boot)), Device: f.Device, Inode: f.Inode}, err
}

// verifyMounts compares what was mounted with what was checked. A process that can write to a parent folder could have
// replaced the path with a link in between. The comparison is not possible if the container has another kernel than
// this machine.
func (sb *sandbox) verifyMounts(ctx context.Context) error {
	if len(sb.mounts) == 0 || sb.direct() {
		return nil
	}
	guests := sb.Services[0].Guests
	for i, m := range sb.Spec.Mounts {
		g, err := guests.Own(ctx)
		if err != nil {
			return err
		}
		found, err := g.Identify(ctx, m.Container)
		if errors.Is(err, fumehood.ErrPermission) { // the user may not enter a parent folder
			if g, err = guests.Of(ctx, "0"); err == nil {
				found, err = g.Identify(ctx, m.Container)
			}
		}
		if err != nil {
			return &fumehood.Error{Op: "identify the mount at " + m.Container, Class: fumehood.ClassOf(err), Err: err}
		}
		if found.Boot == sb.mounts[i].Boot && found != sb.mounts[i] {
			return &fumehood.Error{
				Op: "mount " + m.Host, Class: fumehood.ErrConfig, Err: errors.New("the mount is not what was checked: the path was changed meanwhile, or the daemon sees other files than this process"),
				Hint: "mount a path that nothing else changes; or " + engine.UploadHint,
			}
		}
	}
	return nil
}
