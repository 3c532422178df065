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
	"github.com/fumehood/fumehood/internal/archive"
)

const (
	// DefaultMaxBytes is how many bytes all artifacts of an attempt may have, where a Grader does not say.
	DefaultMaxBytes = 64 << 20
	// DefaultMaxFiles is how many files and folders they may have, where a Grader does not say.
	DefaultMaxFiles = 10_000
	// ArtifactDir is the folder of a grader's sandbox in which artifacts are that say no other place.
	ArtifactDir = "/submission"
)

// Artifact is a file or a folder that is carried from an attempt's sandbox to its grader's.
type Artifact struct {
	// Path is where the attempt leaves it: a path of its default service, or SERVICE:PATH. A relative one is below the
	// service's directory. It is read from the container's own file system: not from a tmpfs.
	Path string `yaml:"path" form:"some" required:"true"`
	// To is the absolute path that it has in the grader's sandbox. Absent means its name below /submission.
	To string `yaml:"to" form:"path"`
	// Optional says that it may be missing.
	Optional bool `yaml:"optional"`
}

// to is the path in the grader's sandbox.
func (a Artifact) to() string {
	if a.To != "" {
		return path.Clean(a.To)
	}
	_, name := split(a.Path)
	return path.Join(ArtifactDir, path.Base(path.Clean("/"+name)))
}

// split splits SERVICE:PATH; an empty service is the default one.
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
		return fmt.Errorf("the artifact %q is to be at %q, which is no absolute path below the root", a.Path, a.To)
	}
	return nil
}

// unfit is why what an attempt has left cannot be graded: its fault, and no error of ours.
type unfit struct{ why string }

func (u *unfit) Error() string { return u.why }

// notThere is what is wrong with an artifact that is missing.
const notThere = "it is not there"

func isUnfit(err error) bool {
	var u *unfit
	return errors.As(err, &u)
}

// room is what artifacts may still have.
type room struct {
	bytes int64
	files int
}

// lookup finds the service that a key names, as it is reached without the help of anything in the sandbox.
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

// absent reports whether an error says that there is nothing at a path.
func absent(err error) bool {
	return errors.Is(err, fumehood.ErrNotFound) || errors.Is(err, fumehood.ErrNotDirectory)
}

// download opens a file or a folder of an attempt as a tar stream. What the attempt is to blame for is an unfit.
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

// unreadable reports whether the Engine cannot read what the attempt has made of a path: a link of 300 bytes, say.
func unreadable(err error) bool {
	return errors.Is(err, fumehood.ErrConfig) || errors.Is(err, fumehood.ErrLimit) || errors.Is(err, fumehood.ErrNotRegular)
}

// brokenOff is a stream of an attempt's files that was not whole. Either the connection broke, or what was being read
// has changed meanwhile, which nothing tells apart.
type brokenOff struct{ error }

func (b *brokenOff) Unwrap() error { return b.error }

// broken is the error of reading such a stream, unless it says itself what it is.
func broken(err error) error {
	if fumehood.ClassOf(err) != nil {
		return err
	}
	return &brokenOff{err}
}

// tries is how often files of an attempt are read that are not whole.
const tries = 3

// steadily calls read until its error is no brokenOff. After some tries that is the attempt's fault: or else one that
// changes its files all the time could make a failure of ours of a bad score. Where the connection is broken, a further
// try says so.
func steadily(ctx context.Context, read func() error) error {
	for try := 1; ; try++ {
		err := read()
		var b *brokenOff
		switch {
		case !errors.As(err, &b):
			return err
		case ctx.Err() != nil:
			return &fumehood.Error{Op: "read", Class: fumehood.ErrCancelled, Err: fumehood.Ended(ctx)}
		case try == tries:
			return &unfit{"it changes while it is being read"}
		}
	}
}

// carry copies an artifact between sandboxes. Of the first it takes names, contents, and which files may be executed.
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

// upload extracts in a service, as files of a user, the archive that write makes: of the path in the directory top that is there,
// and of the directories that are missing between the two. An error of write counts before one of the service.
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

// relative is a path below a directory as one that begins there.
func relative(dir, name string) string { return strings.TrimPrefix(strings.TrimPrefix(name, dir), "/") }

// parents finds the innermost directory above a path that is there, and those that are missing, outermost first and
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

// repack copies an archive of one file or tree that is hostile: under the name, with nothing but plain files and
// folders in it, and no more than there is room for. What else it holds makes it unfit. It will be extracted in top.
func repack(w io.Writer, r io.Reader, top string, parents []string, name string, left *room) error {
	tw, err := begin(w, parents)
	if err != nil {
		return err
	}
	err = eachEntry(r, left, func(sub string, head *tar.Header, content io.Reader) error {
		at := path.Join(name, sub)
		if len(top)+len(at) >= longest { // with the slash between
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

// begin begins an archive with directories.
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

// eachEntry reads a hostile archive of one file or tree: f is told of each entry by its path below the first one, which
// is "." itself. It reads no content that f does not read.
func eachEntry(r io.Reader, left *room, f func(sub string, head *tar.Header, content io.Reader) error) error {
	tr := tar.NewReader(r)
	kinds := map[string]byte{} // by path below the first one
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
			return broken(err)
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
		err = broken(err)
	}
	return n, err
}

// below is a path of an archive as one below its first entry's.
func below(base, full string) (string, error) {
	if base == "." || base == ".." || path.IsAbs(base) || strings.Contains(base, "/") || strings.ContainsRune(full, 0) {
		return "", &unfit{fmt.Sprintf("its archive names %s", quote(full))}
	}
	if full == base {
		return ".", nil
	}
	sub, ok := strings.CutPrefix(full, base+"/")
	if !ok { // path.Clean leaves ".." at the beginning only
		return "", &unfit{fmt.Sprintf("its archive names %s, which is outside of it", quote(full))}
	}
	return sub, nil
}

// longest is the longest path in bytes that is taken, with the NUL at its end: half of what Linux takes (PATH_MAX), counted from
// the artifact and from its new place. The Engine leaves out, without a word, what is too long from its own root.
const longest = 2048

// admit says why an entry is not to be taken.
func admit(head *tar.Header, sub string, kinds map[string]byte, left *room) error {
	what := "it"
	if sub != "." {
		what = "its " + quote(sub)
	}
	switch head.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeSymlink, tar.TypeLink:
		return &unfit{what + " is a link"}
	default:
		return &unfit{what + " is no plain file and no folder"}
	}
	if len(sub) >= longest {
		return &unfit{what + " has too long a name"}
	}
	if _, twice := kinds[sub]; twice {
		return &unfit{what + " is in its archive twice"}
	}
	if sub != "." && kinds[path.Dir(sub)] != tar.TypeDir {
		return &unfit{what + " is in its archive without the folder that it is in"}
	}
	kinds[sub] = head.Typeflag
	if left.files--; left.files < 0 {
		return &unfit{"there are more files than are taken"}
	}
	if head.Size < 0 || head.Size > left.bytes {
		return &unfit{"there are more bytes than are taken"}
	}
	left.bytes -= head.Size
	return nil
}
