package score

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// checkHidden refuses hidden paths that give the host away, as a mount of them would be.
func (g *Grader) checkHidden() error {
	for _, m := range g.Hidden {
		to := path.Clean(m.Container)
		if !path.IsAbs(m.Container) || to == "/" {
			return fmt.Errorf("the hidden %q is to be at %q, which is no absolute path below the root", m.Host, m.Container)
		}
		for _, other := range g.Spec.Mounts {
			if at := path.Clean(other.Container); within(to, at) || within(at, to) {
				return fmt.Errorf("the hidden %q is to be at %s, where %s is mounted", m.Host, to, other.Host)
			}
		}
		if why := hostpath.Unsafe(m.Host, false); why != "" && !g.Spec.AllowUnsafe {
			return fmt.Errorf("the hidden %q is not safe: %s; AllowUnsafe, --allow-unsafe, allows it", m.Host, why)
		}
	}
	return nil
}

// hide copies the hidden files into the sandbox, where they belong to the user of the command, and nobody else may read them:
// what the command runs of the attempt's, as another user, does not see them.
func (g *Grader) hide(ctx context.Context, sb fumehood.Sandbox) error {
	user := g.Cmd.User
	if user == "" {
		user = sb.ServiceInfo().User
	}
	for _, m := range g.Hidden {
		if sb.ServiceInfo().Container == "" {
			return &fumehood.Error{Class: fumehood.ErrUnsupported, Err: fmt.Errorf("hidden files need a sandbox with files of its own, which %s has not", sb.Info().Provider)}
		}
		if err := hideOne(ctx, sb.ViaEngine(), user, m); err != nil {
			return fmt.Errorf("copy the hidden %s: %w", m.Host, err)
		}
	}
	return nil
}

func hideOne(ctx context.Context, svc fumehood.Service, user string, m fumehood.Mount) error {
	host, err := filepath.EvalSymlinks(m.Host) // of the path that the task names, not of what is in it
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

// private keeps of an entry's mode what its owner may do, who may read it in any case.
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
