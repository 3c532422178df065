package score

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

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
	to := path.Clean(m.Container)
	dir, missing, err := parents(ctx, svc, to)
	if err != nil {
		return err
	}
	if user != "" {
		svc = svc.As(user)
	}
	host, err := filepath.EvalSymlinks(m.Host) // of the path that the task names, not of what is in it
	if err != nil {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	packed, unread := io.Pipe()
	go func() {
		err := archive.Pack(unread, host, path.Base(to))
		_ = unread.CloseWithError(err)
	}()
	defer packed.Close()
	pr, pw := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := repackHidden(pw, packed, missing, strings.TrimPrefix(strings.TrimPrefix(path.Dir(to), dir), "/"))
		_ = pw.CloseWithError(err)
		written <- err
	}()
	err = svc.Upload(ctx, dir, pr)
	_ = pr.CloseWithError(errUploaded)
	if why := <-written; why != nil && !errors.Is(why, errUploaded) {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: why} // for which the upload has failed
	}
	return err
}

// repackHidden copies an archive of the user's own files into the folder at, after its parents, for their owner alone.
func repackHidden(w io.Writer, r io.Reader, parents []string, at string) error {
	tw := tar.NewWriter(w)
	for _, dir := range parents {
		if err := tw.WriteHeader(entry(tar.TypeDir, dir+"/", 0o755, 0)); err != nil {
			return err
		}
	}
	for tr := tar.NewReader(r); ; {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return tw.Close()
		}
		if err != nil {
			return err
		}
		head.Mode &= 0o700
		switch head.Typeflag {
		case tar.TypeDir:
			head.Name, head.Mode = path.Join(at, head.Name)+"/", 0o700
		case tar.TypeSymlink:
			head.Name, head.Mode = path.Join(at, head.Name), 0o777
		default:
			head.Name, head.Mode = path.Join(at, head.Name), head.Mode|0o600
		}
		if err := tw.WriteHeader(head); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
}
