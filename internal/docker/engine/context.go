package engine

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tonistiigi/fsutil"
	fstypes "github.com/tonistiigi/fsutil/types"

	"github.com/fumehood/fumehood/internal/image"
)

// dockerfileName is the name of a Dockerfile that BuildKit gets apart from the context.
const dockerfileName = "Dockerfile"

// contextFiles are the files of a build context, in the form in which BuildKit requests them one by one.
type contextFiles struct {
	entries []*fstypes.Stat // in the order of filepath.WalkDir
	content map[string]io.ReaderAt
	close   func()
}

// dockerfileOnly returns a context of one file, the Dockerfile, and an ignore list that makes BuildKit ignore the one of the
// other context: its files have been chosen.
func dockerfileOnly(text string) *contextFiles {
	c := &contextFiles{content: map[string]io.ReaderAt{}}
	for name, text := range map[string]string{dockerfileName: text, dockerfileName + ".dockerignore": image.IgnoreNothing} {
		c.addFile(&fstypes.Stat{Path: name, Mode: 0o644, Size: int64(len(text))}, strings.NewReader(text))
	}
	c.sort()
	return c
}

// spool reads a context into a temporary file, which has no name where the system permits that. The caller must close it.
func spool(tarStream io.Reader) (_ *contextFiles, err error) {
	f, err := os.CreateTemp("", "fumehood-context-")
	if err != nil {
		return nil, err
	}
	removed := os.Remove(f.Name()) == nil // not on Windows
	c := &contextFiles{content: map[string]io.ReaderAt{}, close: func() {
		_ = f.Close() // it was only read
		if !removed {
			_ = os.Remove(f.Name())
		}
	}}
	if err := c.read(tarStream, f); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// read copies the files' content to f.
func (c *contextFiles) read(tarStream io.Reader, f *os.File) error {
	var at int64
	for r := tar.NewReader(tarStream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		s := &fstypes.Stat{
			Path: path.Clean(h.Name), Mode: uint32(h.FileInfo().Mode()), ModTime: h.ModTime.UnixNano(), Linkname: h.Linkname, Size: h.Size,
			Uid: uint32(h.Uid), Gid: uint32(h.Gid), //nolint:gosec // internal/image writes 0
		}
		if s.Path == "." {
			continue
		}
		n, err := io.Copy(f, r)
		if err != nil {
			return err
		}
		c.addFile(s, io.NewSectionReader(f, at, n))
		at += n
	}
	_, err := io.Copy(io.Discard, tarStream) // the writer's error may follow the end of the archive
	c.sort()
	return err
}

func (c *contextFiles) addFile(s *fstypes.Stat, content io.ReaderAt) {
	c.entries = append(c.entries, s)
	c.content[s.Path] = content
}

// sort puts the entries into the order in which the protocol has them.
func (c *contextFiles) sort() {
	slices.SortFunc(c.entries, func(a, b *fstypes.Stat) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
}

// Walk calls fn for all entries below a folder.
func (c *contextFiles) Walk(ctx context.Context, dir string, fn fs.WalkDirFunc) error {
	skipped := ""
	for _, s := range c.entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !inFolder(s.Path, strings.Trim(filepath.ToSlash(dir), "/")) || skipped != "" && inFolder(s.Path, skipped) {
			continue
		}
		switch err := fn(filepath.FromSlash(s.Path), &fsutil.DirEntryInfo{Stat: s}, nil); {
		case errors.Is(err, fs.SkipDir):
			if skipped = s.Path; !s.IsDir() {
				skipped = path.Dir(s.Path)
			}
			if skipped == "." {
				return nil
			}
		case errors.Is(err, fs.SkipAll):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// inFolder reports whether a path is in a folder, or is that folder. An empty dir is the context's folder.
func inFolder(name, dir string) bool {
	rest, ok := strings.CutPrefix(name, dir)
	return ok && (dir == "" || rest == "" || rest[0] == '/')
}

// Open returns the content of a file.
func (c *contextFiles) Open(name string) (io.ReadCloser, error) {
	content, ok := c.content[path.Clean(filepath.ToSlash(name))]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(content, 0, math.MaxInt64)), nil
}
