package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/wire"
)

// checkMounts rejects mounts that are not allowed. It returns the identities of the files that it checked. verifyMounts
// needs them, because the Engine looks the paths up again.
func (p *Provider) checkMounts(spec fumehood.Spec) ([]wire.FileID, error) {
	ids := make([]wire.FileID, len(spec.Mounts))
	for i, m := range spec.Mounts {
		why := hostpath.Unsafe(m.Host, m.Writable)
		resolved := ""
		var err error
		if resolved, ids[i], err = p.checkMount(m); err == nil && why == "" {
			why = hostpath.Unsafe(resolved, m.Writable)
		}
		if why != "" && !spec.AllowUnsafe {
			return nil, &fumehood.Error{
				Op: "mount " + m.Host, Class: fumehood.ErrConfig, Err: fmt.Errorf("this is not safe: %s", why),
				Hint: "mount another path, or allow it (--allow-unsafe)",
			}
		}
		if err != nil {
			return nil, &fumehood.Error{Op: "mount " + m.Host, Class: fumehood.ErrConfig, Err: err, Hint: p.mountHint()}
		}
	}
	return ids, nil
}

func (p *Provider) checkMount(m fumehood.Mount) (resolved string, id wire.FileID, err error) {
	if !p.engine.Local() {
		return "", id, fmt.Errorf("the daemon at %s does not see this machine's files", p.engine.Endpoint())
	}
	if m.Container == compose.GuestDir || strings.HasPrefix(m.Container, compose.GuestDir+"/") {
		return "", id, fmt.Errorf("%s is reserved for Fumehood", compose.GuestDir)
	}
	return identify(m.Host) // an error if it is missing: Docker would create it, as root
}

// verifyMounts compares what was mounted with what was checked. A process that can write to a parent folder could have
// replaced the path with a link in between. The comparison is not possible if the container has another kernel than
// this machine.
func (sb *sandbox) verifyMounts(ctx context.Context) error {
	if len(sb.mounts) == 0 || sb.direct() {
		return nil
	}
	guests := sb.services[0].guests
	for i, m := range sb.spec.Mounts {
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
