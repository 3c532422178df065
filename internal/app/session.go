package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/spec"
	"github.com/fumehood/fumehood/workspace"
)

// SessionOptions say what RunSession does. Open, with its Environment, is needed.
type SessionOptions struct {
	// Open says of what the session is. Its Provider and Logger are set by RunSession.
	Open    session.Options
	Spawn   session.SpawnOptions
	Execute session.ExecuteOptions
	// SnapshotOut is the file to which a snapshot of the workspace is written at the end, and which is replaced. Empty writes none.
	SnapshotOut string
	// Published is told of the ports that are published, where there are some. It may be nil.
	Published func([]fumehood.Port)
	// Show takes the output as it comes; the result then keeps none. Nil has the result keep it.
	Show func(session.Event) error
	// Ended is told of the command's end, before the snapshot is made and the session closed. An error ends RunSession. It may be
	// nil.
	Ended func(*session.Result) error
}

// SessionResult is what has become of a session's command.
type SessionResult struct {
	*session.Result                     // nil where the command has not ended
	Snapshot        *session.Checkpoint // that of SessionOptions.SnapshotOut; nil where none was made
}

// RunSession opens a session, runs one command in it, and closes it. {{static:NAME}} in the command, the set-up and the values of
// variables stands for an asset's path. Where something fails after the command's end, there is a result besides the error.
func (a *App) RunSession(ctx context.Context, o SessionOptions) (res SessionResult, err error) {
	e := o.Open.Environment
	if err := spec.CheckType(e.File, e.Type, a.AllowLocal); err != nil {
		return res, err
	}
	p, err := a.Open(ctx, e.Type)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	o.Open.Provider, o.Open.Logger = p, a.Logger
	s, err := session.Open(ctx, o.Open)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	if err := o.resolve(s); err != nil {
		return res, err
	}
	r, err := s.Spawn(ctx, o.Spawn)
	if err != nil {
		return res, err
	}
	if o.Published != nil && len(e.Docker.Ports)+len(o.Spawn.Ports) > 0 {
		c, err := r.Connection(ctx)
		o.Published(c.Ports)
		if err != nil {
			return res, err
		}
	}
	if o.Show == nil {
		res.Result, err = r.Execute(ctx, o.Execute)
	} else {
		res.Result, err = streamSession(ctx, r, o.Execute, o.Show)
	}
	if err == nil && o.Ended != nil {
		err = o.Ended(res.Result)
	}
	if err != nil || o.SnapshotOut == "" {
		return res, err
	}
	if res.Snapshot, err = s.FinishCheckpoint(ctx); err != nil {
		return res, err
	}
	return res, copyOver(res.Snapshot.Snapshot, o.SnapshotOut)
}

// resolve puts the paths of assets into what is run.
func (o *SessionOptions) resolve(s *session.Session) error {
	for _, text := range []*string{&o.Execute.Command, &o.Spawn.Setup} {
		v, err := s.Resolve(*text)
		if err != nil {
			return err
		}
		*text, _ = v.(string)
	}
	env, err := s.Resolve(o.Spawn.Env)
	if err != nil {
		return err
	}
	o.Spawn.Env, _ = env.(map[string]string)
	return nil
}

// streamSession runs a session's command, whose output show takes. An error of show ends the command.
func streamSession(ctx context.Context, r *session.Runtime, run session.ExecuteOptions, show func(session.Event) error) (*session.Result, error) {
	run.StdoutCap, run.StderrCap = fumehood.KeepNone, fumehood.KeepNone
	for ev, err := range r.Stream(ctx, run) {
		if err != nil {
			return nil, err
		}
		if ev.Result != nil {
			return ev.Result, nil
		}
		if err := show(ev); err != nil {
			return nil, err
		}
	}
	return nil, &fumehood.Error{Op: "run session", Class: fumehood.ErrInfrastructure, Err: io.ErrUnexpectedEOF}
}

// copyOver copies a snapshot's file. What is there under the name is always whole.
func copyOver(from, to string) error {
	return replace(to, func(w io.Writer) error {
		r, err := os.Open(from)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(w, r)
		return err
	})
}

// CreateSnapshot writes a snapshot of a folder to a file, which is replaced: what is there under its name is always whole.
func CreateSnapshot(ctx context.Context, dir, file string, opts workspace.CreateOptions) (m *workspace.Manifest, err error) {
	if err := outside(file, dir); err != nil {
		return nil, unwritten(file, err)
	}
	err = replace(file, func(w io.Writer) (err error) {
		m, err = workspace.Create(ctx, w, dir, opts)
		return err
	})
	return m, err
}

// replace writes a file under another name first, and then gives it its own.
func replace(file string, write func(io.Writer) error) (err error) {
	unfinished := filepath.Join(filepath.Dir(file), fmt.Sprintf(".%s.%d", filepath.Base(file), os.Getpid()))
	w, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666) // the umask decides who may read it
	if err != nil {
		return unwritten(file, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(unwritten(file, err), os.Remove(unfinished))
		}
	}()
	if err := write(w); err != nil {
		return errors.Join(err, w.Close())
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.Rename(unfinished, file)
}

// unwritten is the error of a snapshot's file. One that is a *fumehood.Error already stays.
func unwritten(file string, err error) error {
	if fumehood.ClassOf(err) != nil {
		return err
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err // the path is ours, or the user's own
	}
	return &fumehood.Error{Op: "write snapshot", Path: file, Class: fumehood.ErrConfig, Err: err}
}

// outside makes sure that a snapshot is not written into the folder that it is of: it would hold itself.
func outside(file, dir string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return err
	}
	within, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil //nolint:nilerr // the snapshot tells
	}
	if parent, err = filepath.Abs(parent); err != nil {
		return err
	}
	if within, err = filepath.Abs(within); err != nil {
		return err
	}
	if rel, err := filepath.Rel(within, parent); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("the file lies in the folder %s that the snapshot is of", dir)
	}
	return nil
}
