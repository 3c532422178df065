package score

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// checkHidden rejects hidden paths that would expose the host, by the same rules as for mounts.
func (g *Grader) checkHidden() error {
	for _, m := range g.Hidden {
		to := path.Clean(m.Container)
		if !path.IsAbs(m.Container) || to == "/" {
			return fmt.Errorf("hidden path %q needs an absolute target below the root, not %q", m.Host, m.Container)
		}
		for _, other := range g.Spec.Mounts {
			if at := path.Clean(other.Container); within(to, at) || within(at, to) {
				return fmt.Errorf("hidden path %q goes to %s, where %s is mounted", m.Host, to, other.Host)
			}
		}
		if why := hostpath.Unsafe(m.Host, false); why != "" && !g.Spec.AllowUnsafe {
			return fmt.Errorf("hidden path %q is not safe: %s; allow it (--allow-unsafe)", m.Host, why)
		}
	}
	return nil
}

// hide copies the hidden files into the sandbox. There they belong to the user of the command, and only that user
// can read them. Code of the attempt, which the command runs as another user, cannot.
func (g *Grader) hide(ctx context.Context, sb fumehood.Sandbox) error {
	user := g.Cmd.User
	if user == "" {
		user = sb.ServiceInfo().User
	}
	for _, m := range g.Hidden {
		if sb.ServiceInfo().Image == "" {
			return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("hidden files need a sandbox with its own files, which provider %s does not have", sb.Info().Provider)}
		}
		if err := hideOne(ctx, sb.ViaEngine(), user, m); err != nil {
			return fmt.Errorf("copy hidden path %s: %w", m.Host, err)
		}
	}
	return nil
}

func hideOne(ctx context.Context, svc fumehood.Service, user string, m fumehood.Mount) error {
	host, err := filepath.EvalSymlinks(m.Host) // resolves links only in the path that the task names
	if err != nil {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	return upload(ctx, svc, user, path.Clean(m.Container), func(w io.Writer, _ string, missing []string, name string) error {
		tw, err := begin(w, missing)
		if err == nil {
			err = archive.Add(tw, host, name, private)
		}
		if err == nil {
			err = tw.Close()
		}
		if err != nil {
			return &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
		}
		return nil
	})
}

// private reduces an entry's mode to the owner's permissions, which always include reading.
func private(head *tar.Header) {
	switch head.Typeflag {
	case tar.TypeDir:
		head.Mode = 0o700
	case tar.TypeSymlink:
		head.Mode = 0o777
	default:
		head.Mode = head.Mode&0o700 | 0o600
	}
}
