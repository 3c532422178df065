// Package image prepares the images of sandboxes: it plans which ones are pulled and built, and has a Store and a Builder do
// it. It reads the inputs of builds, which are contexts, their ignore lists, and Dockerfiles.
package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/session/workspace"
)

const (
	// maxContext limits one folder of a context, in bytes, including holes of sparse files: builders fill them.
	maxContext = 10 << 30
	// maxContextEntries limits the entries of a folder, as workspace.Restore does.
	maxContextEntries = 1_000_000
	// dockerignore is the file that lists what is not part of a context.
	dockerignore = ".dockerignore"
)

// Tree is a folder of this machine that becomes part of a build's context.
type Tree struct {
	dir     string
	prefix  string // its path in the context; empty for the root
	options workspace.CreateOptions
	hash    string   // of the included files
	without []string // existing files that were excluded
	// dockerfile is set if the files include the Dockerfile.
	dockerfile bool
}

// Folder returns an empty folder of that name in a context, or nothing if name is empty.
func Folder(name string) *Tree { return &Tree{prefix: name} }

// IgnoreNothing is an ignore list without patterns. Beside a Dockerfile, as NAME.dockerignore, it keeps BuildKit from
// reading the context's own list.
const IgnoreNothing = "# The context has only what is not ignored.\n"

// Hash returns the hash of all included files.
func (t *Tree) Hash() string { return t.hash }

// HasDockerfile reports whether the files include the Dockerfile. If not, the builder must get it apart from the context.
func (t *Tree) HasDockerfile() bool { return t.dockerfile }

// HashOf returns a hash of the inputs of an image: strings, numbers, and lists, maps and structs of these.
func HashOf(v any) string {
	text, _ := json.Marshal(v) // cannot fail for these types
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Options select the files of a folder.
type Options struct {
	// AnyLinks also includes links that lead out of the folder, as Docker does. Neither this package nor a builder
	// follows them. Without it such links are an ErrConfig, because they are broken in an image.
	AnyLinks bool
	// Exclude lists absolute paths, with symbolic links resolved, that are excluded whatever the folder's ignore list
	// contains. A folder that is in one of them is an ErrConfig.
	Exclude []string
}

// Context reads the context of a Dockerfile. dockerfile is its path in the context, or empty if it is not from there.
// Files that match the Dockerfile's own ignore list (NAME.dockerignore) are excluded; without such a list, the
// folder's applies. That may exclude the Dockerfile and the list too.
func Context(ctx context.Context, dir, dockerfile string, opts Options) (*Tree, error) {
	matcher, err := readIgnore(dir, dockerfile)
	if err != nil {
		return nil, err
	}
	return newTree(ctx, dir, "", dockerfile, opts, matcher)
}

// NewTree reads a whole folder. prefix is its path in the context, empty for the root. Files that an image cannot
// contain are an ErrConfig: pipes, sockets, devices.
func NewTree(ctx context.Context, dir, prefix string) (*Tree, error) {
	return newTree(ctx, dir, prefix, "", Options{}, nil)
}

// newTree excludes what matcher matches; a nil matcher matches nothing.
func newTree(ctx context.Context, dir, prefix, dockerfile string, opts Options, matcher *patternmatcher.PatternMatcher) (*Tree, error) {
	t := &Tree{dir: dir, prefix: prefix, options: workspace.CreateOptions{
		Compression: workspace.None, Limits: workspace.Limits{Bytes: maxContext, Entries: maxContextEntries},
	}}
	excluded, err := below(dir, opts.Exclude)
	if err != nil {
		return nil, err
	}
	if matcher != nil || len(excluded) > 0 {
		t.options.Take = func(p string) (take, below bool) {
			if excluded[p] {
				if t.hash == "" { // the first reading
					t.without = append(t.without, p)
				}
				return false, false // excludes its content too
			}
			if matcher == nil {
				return true, true
			}
			ignored, err := matcher.MatchesOrParentMatches(filepath.FromSlash(p))
			take = !ignored || err != nil // the patterns have been checked
			return take, take || matcher.Exclusions()
		}
	}
	m, err := workspace.Create(ctx, io.Discard, dir, t.options)
	if err == nil {
		err = fits(m, opts.AnyLinks)
	}
	if err != nil {
		e := &fumehood.Error{Op: "read for an image", Path: dir, Class: fumehood.ClassOf(err), Err: err}
		if inner, ok := err.(*fumehood.Error); ok { //nolint:errorlint // only the outermost, which describes the same failure
			e.Err, e.Hint = inner.Err, inner.Hint
		}
		var limit *workspace.LimitError
		if errors.As(err, &limit) {
			e.Hint = "list what is not needed in " + dockerignore
		}
		return nil, e
	}
	t.hash = m.Hash()
	t.dockerfile = slices.ContainsFunc(m.Entries, func(e workspace.Entry) bool { return e.Path == dockerfile })
	return t, nil
}

// fits returns an error if m has an entry that an image cannot contain.
func fits(m *workspace.Manifest, anyLinks bool) error {
	bad := func(format string, a ...any) error {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...), Hint: "remove it, or list it in the build context's " + dockerignore}
	}
	for _, s := range m.Skipped {
		return bad("%q is a %s, which no image can hold", s.Path, s.What)
	}
	for _, e := range m.Entries {
		if e.Type == workspace.Link && !anyLinks && (path.IsAbs(e.Target) || !filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(e.Path), e.Target)))) {
			return bad("the link %q leads out of the folder, to %q", e.Path, e.Target)
		}
	}
	return nil
}

// readIgnore reads the ignore list of a context. A nil matcher excludes nothing.
func readIgnore(dir, dockerfile string) (*patternmatcher.PatternMatcher, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &fumehood.Error{Op: "open the build's context", Class: fumehood.ErrConfig, Err: err}
	}
	defer root.Close()
	list := dockerfile + dockerignore
	text, err := readSmall(root, list)
	if dockerfile == "" || errors.Is(err, os.ErrNotExist) {
		list = dockerignore
		text, err = readSmall(root, list)
	}
	fail := func(err error) error {
		return &fumehood.Error{Op: "read", Path: filepath.Join(dir, list), Class: fumehood.ErrConfig, Err: err}
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fail(err)
	}
	patterns, err := ignorefile.ReadAll(strings.NewReader(text))
	if err != nil {
		return nil, fail(err)
	}
	matcher, err := patternmatcher.New(patterns)
	if err == nil {
		_, err = matcher.MatchesOrParentMatches("x") // compiles all patterns
	}
	if err != nil {
		return nil, fail(err)
	}
	return matcher, nil
}

// maxSmall limits a Dockerfile or an ignore list, in bytes.
const maxSmall = 1 << 20

// ReadDockerfile reads a Dockerfile by its path in the folder dir. It does not follow links out of dir.
func ReadDockerfile(dir, name string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", &fumehood.Error{Op: "open the build's context", Class: fumehood.ErrFile, Err: err}
	}
	defer root.Close()
	text, err := readSmall(root, name)
	if err != nil {
		return "", &fumehood.Error{Op: "read", Path: filepath.Join(dir, name), Class: fumehood.ErrFile, Err: err}
	}
	return text, nil
}

// readSmall reads a regular file of at most maxSmall bytes.
func readSmall(root *os.Root, name string) (string, error) {
	return hostpath.InTime(filepath.Join(root.Name(), name), func() (string, error) { return readNow(root, name) })
}

func readNow(root *os.Root, name string) (string, error) {
	info, err := root.Stat(name) // opening a pipe would block
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err == nil && info.Size() > maxSmall {
		err = fmt.Errorf("larger than %d bytes", maxSmall)
	}
	if err != nil {
		return "", err
	}
	text, err := root.ReadFile(name)
	if err == nil && len(text) > maxSmall {
		err = fmt.Errorf("larger than %d bytes", maxSmall)
	}
	return string(text), err
}

// Send passes the trees to build as one context, in a tar stream. If dockerfile is not empty, the context also has a
// file with this content at name. The stream fails if a folder has changed since its Tree was created.
func Send(ctx context.Context, name, dockerfile string, trees []*Tree, build func(content io.Reader) error) error {
	err := archive.Pipe(func(w io.Writer) error { return writeContext(ctx, tar.NewWriter(w), name, dockerfile, trees) }, build)
	for _, t := range trees {
		err = t.explain(err)
	}
	return err
}

func writeContext(ctx context.Context, w *tar.Writer, name, dockerfile string, trees []*Tree) error {
	if dockerfile != "" {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(dockerfile))}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, dockerfile); err != nil {
			return err
		}
	}
	for _, t := range trees {
		if err := t.writeTree(ctx, w); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeTree adds the tree to a context.
func (t *Tree) writeTree(ctx context.Context, w *tar.Writer) error {
	if t.prefix != "" {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: t.prefix + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	if t.dir == "" {
		return nil
	}
	pack := func(to io.Writer) error {
		m, err := workspace.Create(ctx, to, t.dir, t.options)
		if err == nil && m.Hash() != t.hash {
			err = &fumehood.Error{
				Op: "read for an image", Path: t.dir, Class: fumehood.ErrInfrastructure,
				Err: errors.New("it changed while it was read"), Hint: "try again when nothing writes to the folder",
			}
		}
		return err
	}
	return archive.Pipe(pack, archive.Whole(func(r io.Reader) error { return move(w, tar.NewReader(r), t.prefix) }))
}

// move copies all entries of a tar stream to another one, below prefix.
func move(w *tar.Writer, r *tar.Reader, prefix string) error {
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if prefix != "" {
			h.Name = prefix + "/" + h.Name
		}
		h.Format = tar.FormatUnknown // a longer name may need another format
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
	}
}
