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
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

// SessionOptions are the options of RunSession. Open is required, with its Environment.
type SessionOptions struct {
	// Open describes the session. RunSession sets its Provider and Logger.
	Open    session.Options
	Spawn   session.SpawnOptions
	Execute session.ExecuteOptions
	// SnapshotOut is the file to which a snapshot of the workspace is written at the end. An existing file is
	// replaced. Empty disables the snapshot.
	SnapshotOut string
	// Published is called with the published ports, if there are any. It may be nil.
	Published func([]fumehood.Port)
	// Show receives the output as it arrives; the result then has none. If Show is nil, the result keeps the
	// output.
	Show func(session.Event) error
	// Ended is called when the command has ended, before the snapshot is made and the session closed. An error ends
	// RunSession. It may be nil.
	Ended func(*session.Result) error
}

// SessionResult is the result of RunSession.
type SessionResult struct {
	*session.Result                     // nil if the command has not ended
	Snapshot        *session.Checkpoint // the snapshot in SessionOptions.SnapshotOut; nil if none was made
}

// RunSession opens a session, runs one command in it, and closes it. {{static:NAME}} in the command, the setup
// script and the variables is replaced by an asset's path. If a step after the command's end fails, RunSession
// returns both the result and the error.
func (a *App) RunSession(ctx context.Context, o SessionOptions) (res SessionResult, err error) {
	res.Snapshot, err = a.inRuntime(ctx, &o, func(_ *session.Session, r *session.Runtime) (err error) {
		if o.Show == nil {
			res.Result, err = r.Execute(ctx, o.Execute)
		} else {
			res.Result, err = streamSession(ctx, r, o.Execute, o.Show)
		}
		if err == nil && o.Ended != nil {
			err = o.Ended(res.Result)
		}
		return err
	})
	return res, err
}

// StreamSession opens a session and runs commands in one runtime, one after the other: those that next returns, until
// it returns io.EOF. Show and Ended are called for each command and are required. Execute is not used. Placeholders are
// replaced as in RunSession. The first error of a command, of next, Show or Ended ends the session.
func (a *App) StreamSession(ctx context.Context, o SessionOptions, next func(context.Context) (session.ExecuteOptions, error)) (*session.Checkpoint, error) {
	o.Execute = session.ExecuteOptions{}
	return a.inRuntime(ctx, &o, func(s *session.Session, r *session.Runtime) error {
		for {
			run, err := next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = resolve(s, &run.Command, &run.Env)
			}
			var res *session.Result
			if err == nil {
				res, err = streamSession(ctx, r, run, o.Show)
			}
			if err == nil {
				err = o.Ended(res)
			}
			if err != nil {
				return err
			}
		}
	})
}

// inRuntime opens a session, calls run with a runtime of it, makes the snapshot, and closes the session.
func (a *App) inRuntime(ctx context.Context, o *SessionOptions, run func(*session.Session, *session.Runtime) error) (c *session.Checkpoint, err error) {
	e := o.Open.Environment
	if err := spec.CheckType(e.File, e.Type, a.AllowLocal); err != nil {
		return nil, err
	}
	if o.SnapshotOut != "" {
		if err := writable(o.SnapshotOut); err != nil {
			return nil, err
		}
	}
	p, err := a.Open(ctx, e.Type)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	o.Open.Provider, o.Open.Logger = p, a.Logger
	s, err := session.Open(ctx, o.Open)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	if err := errors.Join(resolve(s, &o.Execute.Command, nil), resolve(s, &o.Spawn.Setup, &o.Spawn.Env)); err != nil {
		return nil, err
	}
	r, err := s.Spawn(ctx, o.Spawn)
	if err != nil {
		return nil, err
	}
	if o.Published != nil && len(e.Docker.Ports)+len(o.Spawn.Ports) > 0 {
		c, err := r.Connection(ctx)
		o.Published(c.Ports)
		if err != nil {
			return nil, err
		}
	}
	if err := run(s, r); err != nil || o.SnapshotOut == "" {
		return nil, err
	}
	if c, err = s.FinishCheckpoint(ctx); err != nil {
		return nil, err
	}
	return c, copyOver(c.Snapshot, o.SnapshotOut)
}

// resolve replaces the placeholders of assets in a text and, unless env is nil, in variables by their paths.
func resolve(s *session.Session, text *string, env *map[string]string) error {
	v, err := s.Resolve(*text)
	if err != nil {
		return err
	}
	*text, _ = v.(string)
	if env == nil {
		return nil
	}
	if v, err = s.Resolve(*env); err == nil {
		*env, _ = v.(map[string]string)
	}
	return err
}

// streamSession runs a session's command and passes its output to show. An error of show kills the command.
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

// copyOver copies a snapshot to a file, atomically.
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

// CreateSnapshot writes a snapshot of a folder to a file. An existing file is replaced atomically.
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

// writable checks, before the work whose result is to be written, that replace can write a file.
func writable(file string) error {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return unwritten(file, errors.New("it is a folder"))
	}
	w, err := create(tempPath(file))
	if err == nil {
		err = errors.Join(w.Close(), os.Remove(w.Name()))
	}
	if err != nil {
		return unwritten(file, err)
	}
	return nil
}

// tempPath returns the path of the temporary file that becomes file.
func tempPath(file string) string {
	return filepath.Join(filepath.Dir(file), fmt.Sprintf(".%s.%d", filepath.Base(file), os.Getpid()))
}

func create(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666) // the umask sets the permissions
}

// replace writes a temporary file and renames it to file.
func replace(file string, write func(io.Writer) error) (err error) {
	unfinished := tempPath(file)
	w, err := create(unfinished)
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

// unwritten returns the error of writing a snapshot. An error with a class is returned unchanged.
func unwritten(file string, err error) error {
	if fumehood.ClassOf(err) != nil {
		return err
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err // the path is a temporary one, or the user's own
	}
	return &fumehood.Error{Op: "write snapshot", Path: file, Class: fumehood.ErrConfig, Err: err}
}

// outside checks that a snapshot is not written into its source folder: it would contain itself.
func outside(file, dir string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return err
	}
	within, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil // creating the snapshot reports it
	}
	if parent, err = filepath.Abs(parent); err != nil {
		return err
	}
	if within, err = filepath.Abs(within); err != nil {
		return err
	}
	if rel, err := filepath.Rel(within, parent); err == nil && filepath.IsLocal(rel) {
		return fmt.Errorf("the snapshot file is inside its own source folder %s", dir)
	}
	return nil
}
