package score

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

const (
	// DefaultMaxBytes is the default limit of a Grader for the total size of an attempt's artifacts, in bytes.
	DefaultMaxBytes = 64 << 20
	// DefaultMaxFiles is the default limit of a Grader for the number of their files and folders.
	DefaultMaxFiles = 10_000
	// ArtifactDir is the folder of a grader's sandbox for artifacts that name no other path.
	ArtifactDir = "/submission"
)

// Artifact is a file or folder that is copied from an attempt's sandbox to its grader's.
type Artifact struct {
	// Path is the path of the artifact: a path of the default service, or SERVICE:PATH. A relative path is
	// resolved against the service's directory. It is read from the container's own file system, so it cannot be
	// on a tmpfs.
	Path string `yaml:"path" form:"some" required:"true"`
	// To is its absolute path in the grader's sandbox. Absent means its name below /submission.
	To string `yaml:"to" form:"path"`
	// Optional allows it to be missing.
	Optional bool `yaml:"optional"`
}

// to returns the path in the grader's sandbox.
func (a Artifact) to() string {
	if a.To != "" {
		return path.Clean(a.To)
	}
	_, name := split(a.Path)
	return path.Join(ArtifactDir, path.Base(path.Clean("/"+name)))
}

// split splits SERVICE:PATH. An empty service means the default service.
func split(key string) (service, name string) {
	service, name, ok := strings.Cut(key, ":")
	if !ok || strings.Contains(service, "/") {
		return "", key
	}
	return service, name
}

func (a Artifact) validate() error {
	service, name := split(a.Path)
	switch to := a.to(); {
	case name == "" || strings.ContainsRune(a.Path+a.To, 0) || service == "" && name != a.Path:
		return fmt.Errorf("the artifact %q has no path", a.Path)
	case path.Clean("/"+name) == "/":
		return fmt.Errorf("the artifact %q is the whole file system", a.Path)
	case !path.IsAbs(to) || to == "/":
		return fmt.Errorf("the artifact %q needs an absolute target below the root, not %q", a.Path, a.To)
	}
	return nil
}

// unfit is the error of an artifact that cannot be graded. It is an outcome of the attempt, not an infrastructure
// error.
type unfit struct{ why string }

func (u *unfit) Error() string { return u.why }

// notThere is the reason for a missing artifact.
const notThere = "it does not exist"

func isUnfit(err error) bool {
	var u *unfit
	return errors.As(err, &u)
}

// room is the remaining limit of artifacts.
type room struct {
	bytes int64
	files int
}

// lookup returns the service that a key names, in the form that is reached without help from processes in the
// sandbox.
func lookup(sb fumehood.Sandbox, key string) (fumehood.Service, string, error) {
	service, name := split(key)
	var svc fumehood.Service = sb
	if service != "" {
		var err error
		if svc, err = sb.Lookup(service); err != nil {
			return nil, "", err
		}
	}
	return svc.ViaEngine(), name, nil
}

// absent reports whether an error means that nothing exists at a path.
func absent(err error) bool {
	return errors.Is(err, fumehood.ErrNotFound) || errors.Is(err, fumehood.ErrNotDirectory)
}

// download opens a file or folder of an attempt as a tar stream. Errors that the attempt has caused are an unfit.
func download(ctx context.Context, svc fumehood.Service, name string) (io.ReadCloser, error) {
	name = path.Clean(name)
	info, err := svc.Stat(ctx, name)
	switch {
	case err == nil && !info.Mode.IsRegular() && !info.Mode.IsDir():
		return nil, &unfit{"it is a link, a device, a pipe or a socket"}
	case err == nil:
		var r io.ReadCloser
		if r, err = svc.Download(ctx, name); err == nil {
			return r, nil
		}
	}
	switch {
	case absent(err):
		return nil, &unfit{notThere}
	case unreadable(err):
		return nil, &unfit{"it cannot be read: " + quote(err.Error())}
	}
	return nil, err
}

// unreadable reports whether the Engine cannot read what the attempt has made of a path, for example a link of
// 300 bytes.
func unreadable(err error) bool {
	return errors.Is(err, fumehood.ErrConfig) || errors.Is(err, fumehood.ErrLimit) || errors.Is(err, fumehood.ErrNotRegular)
}

// brokenOff is the error of a stream of an attempt's files that is incomplete. Either the connection broke, or
// the files changed during the read. The two cannot be distinguished.
type brokenOff struct{ error }

func (b *brokenOff) Unwrap() error { return b.error }

// asBrokenOff returns err as a brokenOff, unless it has a class other than that of files that changed.
func asBrokenOff(err error) error {
	if class := fumehood.ClassOf(err); class != nil && !errors.Is(class, fumehood.ErrPermission) {
		return err
	}
	return &brokenOff{err}
}

// tries is the number of times that an incomplete stream of files is read.
const tries = 3

// steadily calls read until its error is not a brokenOff. After some tries the attempt is to blame: otherwise, an
// attempt could keep changing its files and so turn a bad score into an infrastructure error. If the connection
// is broken, the next try fails with another error.
func steadily(ctx context.Context, read func() error) error {
	for try := 1; ; try++ {
		err := read()
		var b *brokenOff
		switch {
		case !errors.As(err, &b):
			return err
		case ctx.Err() != nil:
			return &fumehood.Error{Op: "read", Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
		case try == tries:
			return &unfit{"it keeps changing while it is read"}
		}
	}
}

// carry copies an artifact between sandboxes: names, contents, and which files are executable.
func (a Artifact) carry(ctx context.Context, from fumehood.Sandbox, to fumehood.Service, left *room) error {
	return steadily(ctx, func() error {
		now := *left
		err := a.copy(ctx, from, to, &now)
		if err == nil {
			*left = now
		}
		return err
	})
}

func (a Artifact) copy(ctx context.Context, from fumehood.Sandbox, to fumehood.Service, left *room) error {
	svc, name, err := lookup(from, a.Path)
	if err != nil {
		return err
	}
	r, err := download(ctx, svc, name)
	if err != nil {
		return err
	}
	defer r.Close()
	return upload(ctx, to, "", a.to(), func(w io.Writer, top string, missing []string, name string) error {
		return repack(w, r, top, missing, name, left)
	})
}

// upload extracts an archive in a service, as files of a user. Write writes the archive. It gets the existing
// directory top to extract in, the missing directories between top and the path, and the path relative to top. An
// error of write takes precedence over one of the service.
func upload(ctx context.Context, svc fumehood.Service, user, to string, write func(w io.Writer, top string, missing []string, name string) error) error {
	top, missing, err := parents(ctx, svc, to)
	if err != nil {
		return err
	}
	if user != "" {
		svc = svc.As(user)
	}
	pack := func(w io.Writer) error { return write(w, top, missing, relative(top, to)) }
	return archive.Pipe(pack, func(r io.Reader) error { return svc.Upload(ctx, top, r) })
}

// relative returns a path relative to a directory above it.
func relative(dir, name string) string { return strings.TrimPrefix(strings.TrimPrefix(name, dir), "/") }

// parents returns the innermost existing directory above a path, and the missing ones, outermost first and
// relative to it.
func parents(ctx context.Context, svc fumehood.Service, name string) (dir string, missing []string, err error) {
	for dir = path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		_, err := svc.Stat(ctx, dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fumehood.ErrNotFound) {
			return "", nil, err
		}
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	for i, m := range missing {
		missing[i] = relative(dir, m)
	}
	return dir, missing, nil
}

// repack copies an untrusted archive of one file or tree under a new name. It copies only plain files and
// folders, within the limits of left. Other entries make the archive unfit. The result is to be extracted in top.
func repack(w io.Writer, r io.Reader, top string, parents []string, name string, left *room) error {
	tw, err := begin(w, parents)
	if err != nil {
		return err
	}
	err = eachEntry(r, left, func(sub string, head *tar.Header, content io.Reader) error {
		at := path.Join(name, sub)
		if len(top)+len(at) >= longest { // including the slash
			return &unfit{fmt.Sprintf("its %s has too long a name", quote(sub))}
		}
		if head.Typeflag == tar.TypeDir {
			return tw.WriteHeader(entry(tar.TypeDir, at+"/", 0o755, 0))
		}
		mode := int64(0o644 | head.Mode&0o111)
		if err := tw.WriteHeader(entry(tar.TypeReg, at, mode, head.Size)); err != nil {
			return err
		}
		_, err := io.Copy(tw, content)
		return err
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

// begin starts an archive with directories.
func begin(w io.Writer, dirs []string) (*tar.Writer, error) {
	tw := tar.NewWriter(w)
	for _, dir := range dirs {
		if err := tw.WriteHeader(entry(tar.TypeDir, dir+"/", 0o755, 0)); err != nil {
			return nil, err
		}
	}
	return tw, nil
}

func entry(kind byte, name string, mode, size int64) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: size, Format: tar.FormatPAX}
}

// eachEntry reads an untrusted archive of one file or tree. It calls f for each entry with its path below the
// first entry; the first entry itself is ".". Content that f does not read is skipped.
func eachEntry(r io.Reader, left *room, f func(sub string, head *tar.Header, content io.Reader) error) error {
	tr := tar.NewReader(r)
	kinds := map[string]byte{} // by path below the first entry
	base := ""
	for {
		head, err := tr.Next()
		if errors.Is(err, io.EOF) {
			if base == "" {
				return &unfit{"its archive is empty"}
			}
			return nil
		}
		if err != nil {
			return asBrokenOff(err)
		}
		full := path.Clean(head.Name)
		if base == "" {
			base = full
		}
		sub, err := below(base, full)
		if err != nil {
			return err
		}
		if err := admit(head, sub, kinds, left); err != nil {
			return err
		}
		if err := f(sub, head, breaking{tr}); err != nil {
			return err
		}
	}
}

// breaking is a reader of such a stream.
type breaking struct{ io.Reader }

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = asBrokenOff(err)
	}
	return n, err
}

// below returns a path of an archive relative to that of its first entry.
func below(base, full string) (string, error) {
	if base == "." || base == ".." || path.IsAbs(base) || strings.Contains(base, "/") || strings.ContainsRune(full, 0) {
		return "", &unfit{fmt.Sprintf("its archive names %s", quote(full))}
	}
	if full == base {
		return ".", nil
	}
	sub, ok := strings.CutPrefix(full, base+"/")
	if !ok { // path.Clean keeps ".." only at the beginning
		return "", &unfit{fmt.Sprintf("its archive names %s, which is outside of it", quote(full))}
	}
	return sub, nil
}

// longest is the length of the longest accepted path in bytes, including the NUL at its end. It is half of
// PATH_MAX, the limit of Linux, and applies relative to the artifact and to its new place. The Engine silently
// omits files whose path from its own root is too long.
const longest = 2048

// admit returns an unfit for an entry that must not be copied.
func admit(head *tar.Header, sub string, kinds map[string]byte, left *room) error {
	object := "it"
	if sub != "." {
		object = "its " + quote(sub)
	}
	if skipped, count := archive.ReadSkipped(head); len(skipped) > 0 {
		return &unfit{fmt.Sprintf("its %s cannot be copied: %s", quote(skipped[0].Path), quote(skipped[0].Kind))}
	} else if count > 0 {
		return &unfit{fmt.Sprintf("%d of its files cannot be copied", count)}
	}
	switch head.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeSymlink, tar.TypeLink:
		return &unfit{object + " is a link"}
	default:
		return &unfit{object + " is neither a plain file nor a folder"}
	}
	if len(sub) >= longest {
		return &unfit{object + " has too long a name"}
	}
	if _, twice := kinds[sub]; twice {
		return &unfit{object + " is in its archive twice"}
	}
	if sub != "." && kinds[path.Dir(sub)] != tar.TypeDir {
		return &unfit{object + " is in its archive without the folder above it"}
	}
	kinds[sub] = head.Typeflag
	if left.files--; left.files < 0 {
		return &unfit{"there are more files than allowed"}
	}
	if head.Size < 0 || head.Size > left.bytes {
		return &unfit{"there are more bytes than allowed"}
	}
	left.bytes -= head.Size
	return nil
}
