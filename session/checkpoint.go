package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session/workspace"
)

// Checkpoint describes the saved workspace at the end of a piece of an agent's work.
type Checkpoint struct {
	Number int // starts at 1
	// Snapshot is the path of the snapshot file. It belongs to the session, and Close removes it.
	Snapshot string
	// Archive is the path of the copy in the spec's archive_save_dir. It is empty if that is not set.
	Archive  string
	Manifest *workspace.Manifest
	// Changes are the differences from the previous checkpoint, or from the start if there is none.
	Changes []workspace.Change
}

// The files in a session's folder that hold the workspace as it was at the start. The start file holds
// everything. The first file holds what checkpoints include; it is written only if that is less.
const (
	startFile = "start.tar"
	firstFile = "first.tar"
)

// saveStart saves the workspace as it is at the start.
func (s *Session) saveStart(ctx context.Context) error {
	all := workspace.CreateOptions{Ignore: s.assetGlobs(), Compression: workspace.None, Limits: s.opts.Limits}
	if _, err := s.saveFile(ctx, filepath.Join(s.folder, startFile), all); err != nil || !s.chooses() {
		return err
	}
	first := s.snapshotOptions()
	first.Compression = workspace.None
	_, err := s.saveFile(ctx, filepath.Join(s.folder, firstFile), first)
	return err
}

// chooses reports whether checkpoints leave out a part of the workspace.
func (s *Session) chooses() bool {
	return s.opts.Kind == Agent && (s.env.Snapshot.KeepGlobs != nil || len(s.env.Snapshot.IgnoreGlobs) > 0)
}

// snapshotOptions returns the options of the spec, which also leave out the copies of the assets.
func (s *Session) snapshotOptions() workspace.CreateOptions {
	c := s.env.Snapshot
	return workspace.CreateOptions{
		Keep: c.KeepGlobs, Ignore: append(s.assetGlobs(), c.IgnoreGlobs...), Compression: workspace.Compression(c.Compression),
		Limits: s.opts.Limits,
	}
}

// saveFile writes a snapshot of the workspace and returns its index. On an error it removes the incomplete file.
func (s *Session) saveFile(ctx context.Context, file string, opts workspace.CreateOptions) (m *workspace.Manifest, err error) {
	err = s.reading(ctx, func(dir string) error {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		m, err = workspace.Create(ctx, f, dir, opts)
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(file))
		}
		return err
	})
	return m, err
}

// FinishCheckpoint stores a snapshot of an agent's workspace as the spec's section snapshot defines it, and
// returns it with the differences from the previous one. Reset then returns to this checkpoint. A relative
// archive_save_dir is resolved against this process's working directory, and is created if it is missing. In an
// evaluation FinishCheckpoint returns an ErrConfig, and while a command runs an ErrBusy.
func (s *Session) FinishCheckpoint(ctx context.Context) (*Checkpoint, error) {
	const op = "finish checkpoint"
	if s.opts.Kind != Agent {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: errors.New("only an agent's session has checkpoints")}
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	if err := s.quiet(op); err != nil {
		return nil, err
	}
	c, err := s.checkpoint(ctx)
	if err != nil {
		return nil, opError(op, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished, s.latest = c.Number, c.Snapshot // the rest can be large and belongs to the caller
	return c, nil
}

// quiet returns an ErrBusy while a command runs.
func (s *Session) quiet(op string) error {
	if err := s.checkOpen(op); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runtimes {
		if r.running() {
			return &fumehood.Error{Op: op, Class: fumehood.ErrLimit, Err: ErrBusy, Hint: "wait until it ends, or kill it"}
		}
	}
	return nil
}

func (s *Session) checkpoint(ctx context.Context) (_ *Checkpoint, err error) {
	if err := s.fetch(ctx); err != nil {
		return nil, err
	}
	first := startFile
	if s.chooses() {
		first = firstFile
	}
	before, number := s.last(first)
	opts := s.snapshotOptions()
	end := ".tar"
	if opts.Compression != workspace.None {
		end += "." + string(opts.Compression)
	}
	c := &Checkpoint{Number: number + 1}
	c.Snapshot = filepath.Join(s.folder, fmt.Sprintf("checkpoint-%03d%s", c.Number, end))
	err = s.whileFrozen(ctx, func() (err error) {
		c.Manifest, err = s.saveFile(ctx, c.Snapshot, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(c.Snapshot))
		}
	}()
	if c.Changes, err = workspace.Diff(ctx, workspace.FromFile(before, s.opts.Limits), workspace.FromFile(c.Snapshot, s.opts.Limits)); err != nil {
		return nil, err
	}
	if dir := s.env.Snapshot.ArchiveSaveDir; dir != "" {
		c.Archive, err = copyInto(c.Snapshot, dir, s.name)
	}
	return c, err
}

// copyInto copies a snapshot file to the user's archive folder.
func copyInto(snapshot, dir, name string) (_ string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the user's own folder
		return "", err
	}
	from, err := os.Open(snapshot)
	if err != nil {
		return "", err
	}
	defer from.Close()
	file := filepath.Join(dir, name+"-"+filepath.Base(snapshot))
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the umask decides who may read it
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file))
	}
	return file, nil
}

// last returns the file and the number of the last checkpoint, or the file start and 0 if there is none.
func (s *Session) last(start string) (file string, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished > 0 {
		return s.latest, s.finished
	}
	return filepath.Join(s.folder, start), 0
}

// Reset restores the workspace from the last checkpoint, or from the start if there is none. Running containers
// see the restored workspace too. After a checkpoint, files that the spec leaves out of snapshots are gone. An
// agent's assets are copied again. While a command runs Reset returns an ErrBusy. After any other error the
// workspace can be incomplete: call Reset again.
func (s *Session) Reset(ctx context.Context) error {
	const op = "reset workspace"
	s.saving.Lock()
	defer s.saving.Unlock()
	if err := s.quiet(op); err != nil {
		return err
	}
	file, _ := s.last(startFile)
	err := s.whileFrozen(ctx, func() error {
		if err := s.empty(ctx); err != nil {
			return err
		}
		if err := s.restore(ctx, file); err != nil {
			return err
		}
		return s.placeAssets(ctx)
	})
	if err != nil {
		return opError(op, err)
	}
	return opError(op, s.refresh(ctx))
}

// awaitThaw waits until no container is frozen. The guest of a frozen container does not answer in time.
func (s *Session) awaitThaw() {
	s.freezing.RLock()
	defer s.freezing.RUnlock()
}

// whileFrozen calls f while the containers that mount the workspace are frozen. Without that, processes that a command
// has left running could write to the workspace at any time. If the provider cannot freeze, frozen calls f all
// the same and logs a warning.
func (s *Session) whileFrozen(ctx context.Context, f func() error) (err error) {
	if s.local() || s.uploads() {
		return f()
	}
	s.mu.Lock()
	runtimes := slices.Clone(s.runtimes)
	s.mu.Unlock()
	s.freezing.Lock()
	defer s.freezing.Unlock()
	for _, r := range runtimes {
		if r.running() {
			continue // its time limit keeps running, so it must not be frozen
		}
		thaw, ferr := r.sb.Freeze(ctx)
		switch {
		case errors.Is(ferr, fumehood.ErrUnsupported):
			s.once(s.log.Warn, "containers are not frozen while the workspace is saved or changed", "reason", ferr)
		case ferr != nil && r.usable("") == nil:
			return ferr
		case ferr == nil:
			defer func() { err = errors.Join(err, thaw(ctx)) }()
		}
	}
	return f()
}
