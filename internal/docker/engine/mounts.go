package engine

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/fumehood/fumehood"
)

// Mount is a mount of a container.
type Mount struct {
	At       string // its destination
	Source   string // on the Engine's machine; empty for a tmpfs
	Writable bool
}

// Covering looks for a mount of a container that could cover dir or a path below it. It returns the mount's
// destination and the reason, or "" without such a mount. If dir itself is a link, at is dir. The container must not
// have started. others are the containers that may run before it or at the same time. Mounts at the destinations in
// own are ignored.
//
// A container runtime mounts shallow destinations first. It follows links in the image and in what it has already
// mounted. So a mount covers dir if links lead its destination there. The final place of a mount is unknown if links
// lead its destination into another mount, or into a file system that exists only while the container runs. It is
// also unknown if the destination is in a mount in which other containers can create links meanwhile.
func (c *Client) Covering(ctx context.Context, container State, others []State, dir string, own ...string) (at, why string, err error) {
	if w, err := c.way(ctx, container.ID, dir); err != nil || w.linked {
		return dir, "it is a link", err // whoever can change the link controls what is at its end
	}
	mounts := slices.DeleteFunc(slices.Clone(container.Mounts), func(m Mount) bool { return slices.Contains(own, m.At) })
	if len(others) > 0 { // if they share a network, other containers can write to the Engine's own files
		mounts = append(mounts, Mount{At: "/etc/hosts"}, Mount{At: "/etc/hostname"}, Mount{At: "/etc/resolv.conf"})
	}
	ways := make([]way, len(mounts))
	for i, m := range mounts {
		if ways[i], err = c.way(ctx, container.ID, m.At); err != nil {
			return "", "", err
		}
	}
	for i, w := range ways {
		if why := w.over(dir); why != "" {
			return mounts[i].At, why, nil
		}
		for j, m := range mounts {
			if j == i || !w.passes(path.Clean(m.At)) && !w.passes(ways[j].end()) {
				continue
			}
			if w.linked || w.hides() {
				return mounts[i].At, "links lead, or could lead, into the mount at " + m.At, nil
			}
			if canWrite(others, m) {
				return mounts[i].At, "it is in the mount at " + m.At + ", which other services can write to", nil
			}
		}
	}
	return "", "", nil
}

// canWrite reports whether one of the containers can write to the source of a mount, or to a part of it.
func canWrite(containers []State, m Mount) bool {
	return m.Source != "" && slices.ContainsFunc(containers, func(s State) bool {
		return slices.ContainsFunc(s.Mounts, func(o Mount) bool {
			return o.Writable && o.Source != "" && (below(o.Source, m.Source) || below(m.Source, o.Source))
		})
	})
}

// below reports whether a clean path equals dir or is below it.
func below(name, dir string) bool {
	return name == dir || dir == "/" || strings.HasPrefix(name, dir+"/")
}

// way is how a path resolves in a container.
type way struct {
	points []string // all paths visited, including links and the end
	linked bool     // a link was followed
}

func (w way) end() string { return w.points[len(w.points)-1] }

// passes reports whether the way leads through dir or ends there.
func (w way) passes(dir string) bool {
	return slices.ContainsFunc(w.points, func(p string) bool { return below(p, dir) })
}

// hides reports whether the way leads into a file system that the Engine does not see.
func (w way) hides() bool { return slices.ContainsFunc(hidden, w.passes) }

// over returns the reason why a mount at the way's end could cover dir, or "" if it cannot.
func (w way) over(dir string) string {
	switch end := w.end(); {
	case below(dir, end):
		return "it is mounted at or above the directory"
	case w.passes(dir):
		return "its path leads into the directory"
	case w.passes("/proc") && (w.linked || path.Dir(end) != "/proc" || slices.Contains([]string{"self", "thread-self", "mounts", "net"}, path.Base(end))):
		return "its path leads through /proc, whose links lead anywhere"
	case (w.passes("/dev") || w.passes("/sys")) && w.linked:
		return "links lead into /dev or /sys, whose links lead elsewhere"
	}
	for _, links := range []string{"/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/core", "/dev/ptmx"} {
		if w.passes(links) {
			return "its path leads through " + links + ", which is a link"
		}
	}
	for _, shared := range []string{"/dev/shm", "/dev/mqueue", "/dev/pts"} { // services may share them, by ipc
		if w.passes(shared) && w.end() != shared {
			return "it is in " + shared + ", where other services may create links"
		}
	}
	return ""
}

// way resolves an absolute path in a container; its end need not exist. A runtime cleans ".." from the destination of
// a mount before it resolves it, but not from a link.
func (c *Client) way(ctx context.Context, container, name string) (way, error) {
	var w way
	at, rest, links, missing := "/", elements(path.Clean(name)), 0, false
	for len(rest) > 0 {
		next := path.Join(at, rest[0])
		missing = missing && rest[0] != ".."
		rest = rest[1:]
		w.points = append(w.points, next)
		if missing || below(next, "/proc") || below(next, "/dev") { // what the image has there is hidden at run time
			at = next
			continue
		}
		info, err := c.Stat(ctx, container, next)
		switch {
		case errors.Is(err, fumehood.ErrUnsupported), errors.Is(err, fumehood.ErrNotFound), IsGone(err) && c.isThere(ctx, container):
			at, missing = next, true
			continue
		case err != nil:
			return w, err
		case info.Mode&fs.ModeSymlink == 0:
			at = next
			continue
		}
		w.linked = true
		if links++; links > maxLinks {
			return w, errLoop
		}
		if path.IsAbs(info.LinkTarget) {
			at = "/"
		}
		rest = append(elements(info.LinkTarget), rest...)
	}
	if len(w.points) == 0 || w.end() != at {
		w.points = append(w.points, at) // as for a link to the root
	}
	return w, nil
}

// elements returns the names in a path.
func elements(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
}

// isThere reports whether a container exists.
func (c *Client) isThere(ctx context.Context, container string) bool {
	_, err := c.Inspect(ctx, container)
	return err == nil
}

// HasFile reports whether a path in a container is a regular file of at most limit bytes with a SHA-256, given in hex.
func (c *Client) HasFile(ctx context.Context, container, name string, limit int64, sum string) (bool, error) {
	res, err := c.copyFrom(ctx, container, name)
	if errdefs.IsNotFound(err) {
		_, err = c.Inspect(ctx, container) // the container itself may be missing
		return false, err
	}
	if err != nil {
		err = c.fileFailure(ctx, container, err)
		for _, class := range []error{fumehood.ErrNotFound, fumehood.ErrNotDirectory, fumehood.ErrPermission} {
			if errors.Is(err, class) { // as for a mount whose directory is missing
				return false, nil
			}
		}
		return false, err
	}
	defer res.Content.Close()
	tr := tar.NewReader(res.Content)
	head, err := tr.Next()
	if err != nil {
		return false, c.translate(err, "read "+name)
	}
	if !head.FileInfo().Mode().IsRegular() || head.Size > limit {
		return false, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, tr); err != nil {
		return false, c.translate(err, "read "+name)
	}
	return hex.EncodeToString(h.Sum(nil)) == sum, nil
}
