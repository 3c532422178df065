package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
)

// CreateOptions select the content of a snapshot. The zero value includes everything and compresses with gz.
//
// The globs are those of github.com/bmatcuk/doublestar. They are matched against paths relative to the folder,
// with slashes: "*.pyc" matches in the folder itself, "**/*.pyc" anywhere below it. A folder that matches
// includes everything in it.
type CreateOptions struct {
	Keep        []string    // paths to include, with their parent folders; nil includes all, an empty list nothing
	Ignore      []string    // paths to leave out, even if Keep matches them
	Compression Compression // empty means Gzip; Bzip2 is an ErrUnsupported
	// Limits bound the content. The size of a file is checked before the file is read.
	Limits Limits
	// Take decides about each path that Keep and Ignore select: whether to include it and, for a folder, whether
	// to look below it. Parent folders of included paths are included. Nil includes all.
	Take func(path string) (take, below bool)
}

// Validate returns the error that Create would return for the options before it looks at the folder.
func (o CreateOptions) Validate() error {
	if _, err := compile(o.Keep, o.Ignore); err != nil {
		return failure("snapshot options", "", fumehood.ErrConfig, err)
	}
	if o.Compression == "" {
		return nil
	}
	w, err := compress(io.Discard, o.Compression)
	if err != nil {
		return failure("snapshot options", "", fumehood.ErrConfig, err)
	}
	return w.Close()
}

// Create writes a snapshot of the folder dir to w and returns its index. Links are stored as links and never
// followed. Permission bits and times, to the second, are kept. Owners, extended attributes and set-id and sticky
// bits are not kept, and each name of a hard link becomes a separate file. Pipes, sockets and devices are left
// out and listed in Manifest.Skipped. On Linux a file whose holes have 1 MiB or more together is stored without
// them.
//
// An error names up to ten files that cannot be read. A file that changes while it is read is an
// ErrInfrastructure. After an error, the data written to w is not a complete snapshot.
func Create(ctx context.Context, w io.Writer, dir string, opts CreateOptions) (*Manifest, error) {
	m, err := create(ctx, w, dir, opts)
	if err != nil {
		return nil, failure("snapshot", dir, fumehood.ErrInfrastructure, err)
	}
	return m, nil
}

func create(ctx context.Context, w io.Writer, dir string, opts CreateOptions) (*Manifest, error) {
	g, err := compile(opts.Keep, opts.Ignore)
	if err != nil {
		return nil, err
	}
	if opts.Compression == "" {
		opts.Compression = Gzip
	}
	root, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	buffered := bufio.NewWriterSize(w, bufferSize)
	compressed, err := compress(buffered, opts.Compression)
	if err != nil {
		return nil, err
	}
	blocks := bufio.NewWriterSize(compressed, bufferSize) // a tar stream is written in small pieces
	limits := opts.Limits.WithDefaults()
	q := newQueue(ctx, blocks, limits.Stored)
	p := &packer{ctx: ctx, globs: g, take: opts.Take, queue: q, tally: tally{limits: limits}}
	go func() {
		defer q.finish()
		if err := p.dir(root, "", nil, g.keep == nil); err != nil {
			q.fail(err)
		} else if p.failed != nil {
			q.fail(p.unreadable())
		}
	}()
	m, err := q.write()
	if err == nil {
		err = q.close()
	}
	if err == nil {
		err = errors.Join(blocks.Flush(), compressed.Close(), buffered.Flush())
	} else {
		_ = compressed.Close() // stops its goroutines; its error no longer matters
	}
	m.Skipped = p.skipped
	return m, err
}

const (
	bufferSize = 256 << 10
	// maxPath bounds the length of a path in bytes, as PATH_MAX of Linux does, and so the depth of a tree.
	maxPath = 4096
	// maxNamed is the number of unreadable files that an error names.
	maxNamed = 10
)

// packer walks a folder and queues the entries of a snapshot. Each folder is opened relative to its parent. So no
// path is resolved twice and none leads out of the folder.
type packer struct {
	ctx     context.Context //nolint:containedctx // lives for one call
	globs   globs
	take    func(path string) (take, below bool)
	queue   *queue
	tally   tally // of the queued entries
	skipped []Skipped
	failed  []error // errors of unreadable files
	more    int     // number of unreadable files not in failed
}

// dir writes the content of the folder r. Above are the parent folders that are not written yet, because nothing
// in them is included so far. Kept reports whether everything below is kept.
func (p *packer) dir(r *os.Root, at string, above []Entry, kept bool) error {
	names, err := readDir(r)
	if err != nil {
		p.cannotRead(at, err)
		return nil
	}
	for _, d := range names {
		if p.ctx.Err() != nil {
			return canceledError(p.ctx)
		}
		name := at + filepath.ToSlash(d.Name())
		if p.globs.ignored(name) {
			continue
		}
		keep := kept || p.globs.kept(name)
		take, below := p.selects(name, keep)
		if d.IsDir() {
			if !below {
				continue
			}
			if above, err = p.subdir(r, d.Name(), name, above, keep, take); err != nil {
				return err
			}
			continue
		}
		if !take {
			continue
		}
		if len(name) > maxPath {
			return tooDeep(name)
		}
		if err := p.folders(above); err != nil {
			return err
		}
		above = nil
		if err := p.leaf(r, d, name); err != nil {
			return err
		}
	}
	return nil
}

// selects reports whether to include a path, and whether to look below it.
func (p *packer) selects(name string, keep bool) (take, below bool) {
	if p.take == nil || !keep {
		return keep, true
	}
	return p.take(name)
}

func tooDeep(name string) error {
	return &fumehood.Error{Op: "read", Path: name[:64] + "...", Class: fumehood.ErrLimit, Err: fmt.Errorf("the path is longer than %d bytes", maxPath)}
}

func readDir(r *os.Root) ([]fs.DirEntry, error) {
	f, err := r.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ReadDir(-1)
	slices.SortFunc(names, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return names, err
}

// subdir writes the selected content of a folder, including its own entry. It returns the parent folders that are
// still to be written.
func (p *packer) subdir(r *os.Root, base, name string, above []Entry, keep, take bool) ([]Entry, error) {
	if len(name) > maxPath {
		return nil, tooDeep(name)
	}
	sub, err := r.OpenRoot(base)
	if err != nil {
		p.cannotRead(name, err)
		return above, nil
	}
	defer sub.Close()
	info, err := sub.Stat(".")
	if err != nil {
		p.cannotRead(name, err)
		return above, nil
	}
	above = append(slices.Clip(above), Entry{Path: name, Type: Dir, Mode: Perm(info.Mode().Perm()), ModTime: seconds(info)})
	if take {
		if err := p.folders(above); err != nil {
			return nil, err
		}
		above = nil
	}
	before := p.tally.entries
	if err := p.dir(sub, name+"/", above, keep); err != nil {
		return nil, err
	}
	if p.tally.entries > before || take {
		return nil, nil
	}
	return above[:len(above)-1], nil
}

// seconds returns the stored time of a file. It is rounded down, so that it is never in the future.
func seconds(info fs.FileInfo) time.Time { return info.ModTime().UTC().Truncate(time.Second) }

// folders queues entries that have no content.
func (p *packer) folders(all []Entry) error {
	for _, e := range all {
		if err := p.put(&item{entry: e}); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) put(i *item) error {
	err := p.tally.add(i.entry)
	if err == nil {
		err = p.queue.put(i)
	}
	if err != nil && i.file != nil {
		_ = i.file.Close() // nothing was written
	}
	return err
}

// leaf writes an entry that is not a folder.
func (p *packer) leaf(r *os.Root, d fs.DirEntry, name string) error {
	switch mode := d.Type(); {
	case mode.IsRegular():
		return p.file(r, d.Name(), name)
	case mode&fs.ModeSymlink != 0:
		return p.link(r, d.Name(), name)
	default:
		p.skipped = append(p.skipped, Skipped{name, archive.Kind(mode)})
		return nil
	}
}

func (p *packer) link(r *os.Root, base, name string) error {
	info, err := r.Lstat(base)
	if err != nil {
		p.cannotRead(name, err)
		return nil
	}
	target, err := r.Readlink(base)
	if err != nil {
		p.cannotRead(name, err)
		return nil
	}
	e := Entry{Path: name, Type: Link, Mode: 0o777, ModTime: seconds(info), Target: filepath.ToSlash(target)}
	return p.folders([]Entry{e})
}

func (p *packer) file(r *os.Root, base, name string) error {
	f, info, err := openRegular(r, base)
	if err != nil {
		p.cannotRead(name, err)
		return nil
	}
	if p.failed != nil {
		return f.Close() // the snapshot has failed: only look for more unreadable files
	}
	e := Entry{Path: name, Type: File, Mode: Perm(info.Mode().Perm()), Size: info.Size(), ModTime: seconds(info)}
	return p.put(&item{entry: e, file: f, info: info})
}

func changedError(name string) error {
	return &fumehood.Error{
		Op: "read", Path: name, Class: fumehood.ErrInfrastructure, Err: errors.New("it changed while it was read"),
		Hint: "try again when nothing writes to the folder",
	}
}

// openRegular opens a regular file of r. Other files are an error: opening a pipe or a device could block or have
// side effects.
func openRegular(r *os.Root, name string) (*os.File, fs.FileInfo, error) {
	f, err := r.OpenFile(name, os.O_RDONLY|archive.NonBlock, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = &fumehood.Error{Class: fumehood.ErrIsDirectory}
	case !info.Mode().IsRegular():
		err = &fumehood.Error{Class: fumehood.ErrNotRegular}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

func (p *packer) cannotRead(name string, err error) {
	if name == "" {
		name = "."
	}
	if len(p.failed) == maxNamed {
		p.more++
		return
	}
	p.failed = append(p.failed, failure("read", name, fumehood.ErrInfrastructure, cause(err)))
}

func (p *packer) unreadable() error {
	if p.more > 0 {
		p.failed = append(p.failed, fmt.Errorf("and %d more", p.more))
	}
	return errors.Join(p.failed...)
}
