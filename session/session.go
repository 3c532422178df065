// Package session runs code over a workspace, as a coding benchmark does. An environment spec defines where the
// code runs. The code works in a private copy of a workspace. Runtimes are spawned over both: for an agent that
// changes the workspace, or for an evaluation that judges it.
//
// With a provider that can only upload and download archives (Docker's with docker.TransportEngine), the
// workspace is mounted and belongs to root or to this machine's user. Three operations need a provider that can
// list, change and remove files: copying the workspace, giving it to another user, and reading or removing files
// that only root may read or remove. With other providers they return an ErrUnsupported.
//
// The package uses fumehood.Provider and no container engine directly. Every error is a *fumehood.Error that
// wraps the provider's error. In addition to the classes, ErrBusy and ErrStdin are matched with errors.Is.
package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

// Kind is the purpose of a session.
type Kind string

const (
	// Agent works in the workspace: it has checkpoints, and the assets are copied into the workspace.
	Agent Kind = "agent"
	// Evaluation judges the workspace: it also runs eval_commands, and the assets are mounted read-only.
	Evaluation Kind = "evaluation"
)

// Options describe the session to open. Provider, Environment and Kind are required, and exactly one of Workspace
// and Snapshot.
type Options struct {
	// Provider starts the containers. The caller closes it, after the session.
	Provider fumehood.Provider
	// Environment defines where code runs. Its type must match the provider. Open copies it.
	Environment *spec.Environment
	Kind        Kind

	// Workspace is a folder of this machine. It is copied and not changed.
	Workspace string
	// Snapshot is the path of a snapshot file from which the workspace is restored. Such a session resumes
	// earlier work: the spec's resume_commands, if there are any, run instead of its commands.
	Snapshot string

	// Dir is the folder that holds the private folders of sessions. Empty means $XDG_STATE_HOME/fumehood/session,
	// or .local/state/fumehood/session in the user's home. If workspaces are mounted, the daemon must be able to
	// access it.
	Dir string

	// AssetDir is the folder of this machine that the paths of assets are relative to. Assets are groups of
	// static assets by name; a later group overrides an earlier one. With mount_workspace: false the assets of an
	// evaluation are uploaded instead of mounted, and are read-only only for users other than root.
	AssetDir string
	Assets   []map[string]spec.Asset

	// Limits bound the workspace whenever it is copied, saved or restored: at the start, in checkpoints, and when
	// it is downloaded from a container.
	Limits workspace.Limits

	// Inputs are written into the workspace before anything runs.
	Inputs []workspace.Input

	// HUID and HGID are the user and group of evaluations whose spec names none. Empty means those of this
	// process. Under type docker, commands find them in the variables HUID and HGID, unless the spec or the spawn
	// sets these.
	HUID, HGID string

	// Logger receives what weakens isolation (in place of the provider's logger), the names of variables of this
	// machine that are passed on (never their values), the steps of a build, where kept containers are, and that
	// snapshots have another compression than the spec's. If Logger is nil, the provider's logger receives what
	// weakens isolation, and the rest is not logged.
	Logger *slog.Logger
	// Journal records the activity in the sandboxes of all runtimes of the session. Nil disables it.
	Journal *slog.Logger
}

// Session is a private workspace and the runtimes over it. Its methods may be called by many goroutines at once.
// The caller must close it.
type Session struct {
	opts   Options
	env    spec.Environment      // with defaults
	assets map[string]spec.Asset // merged
	log    *slog.Logger
	name   string
	folder string // the session's private folder, with the owner's mark

	building sync.Mutex // held while the spec's image is built
	built    string     // the image's id; empty until it is built

	freezing sync.RWMutex // held for writing while containers are frozen, when no command can start

	saving sync.Mutex // held while the workspace is copied, saved, restored or removed
	owner  string     // the user who owns the workspace; empty if that is this machine's user

	mu       sync.Mutex
	runtimes []*Runtime // not cleaned up yet
	spawned  int
	kept     bool            // a kept container has the workspace mounted
	image    string          // of the last runtime that had the workspace mounted
	logged   map[string]bool // messages that are logged only once
	finished int             // number of checkpoints
	latest   string          // file of the last checkpoint
	closed   bool
}

// ErrBusy is wrapped by the error of a call that must wait until a running command ends. That error is an ErrLimit: the
// limit is one command at a time, and the same call succeeds later.
var ErrBusy = errors.New("a command is already running")

// Open creates a private workspace. It starts no container. If it fails, nothing is left behind.
//
// First it removes the folders in Dir of sessions whose process ended without closing them, as Cleanup does. Only for
// files in them that this machine's user may not remove, it starts a container. Errors of that are only logged.
func Open(ctx context.Context, opts Options) (_ *Session, err error) {
	const op = "open session"
	if err := opts.check(); err != nil {
		return nil, opError(op, err)
	}
	opts.Environment = opts.Environment.Clone()
	s := &Session{
		opts: opts, env: opts.Environment.WithDefaults(), log: opts.Logger, logged: map[string]bool{},
		name: "session-" + strings.ToLower(rand.Text()[:12]),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if c := &s.env.Snapshot.Compression; opts.Kind == Agent && *c == string(workspace.Bzip2) {
		s.log.Warn("snapshots are written as gz: bz2 can only be read", "spec", s.env.File)
		*c = string(workspace.Gzip)
	}
	if s.assets, err = spec.MergeAssets(opts.Assets...); err != nil {
		return nil, opError(op, err)
	}
	dir := opts.Dir
	if dir == "" {
		if dir, err = owner.StateDir("session"); err != nil {
			return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err, Hint: "set HOME or XDG_STATE_HOME"}
		}
	}
	if dir, err = filepath.Abs(dir); err == nil && s.opts.AssetDir != "" {
		s.opts.AssetDir, err = filepath.Abs(s.opts.AssetDir)
	}
	if err == nil {
		err = s.checkAssets()
	}
	if err == nil {
		s.sweep(ctx, dir)
		s.folder, err = owner.MakeFolder(dir, s.name, s.env.Docker.KeepContainerAfterClean)
	}
	if err != nil {
		return nil, opError(op, err)
	}
	if err := s.fill(ctx); err != nil {
		return nil, opError(op, errors.Join(err, owner.Discard(s.folder)))
	}
	return s, nil
}

func (o *Options) check() error {
	bad := func(format string, a ...any) error {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	switch {
	case o.Provider == nil || o.Environment == nil:
		return bad("provider and environment are required")
	case o.Kind != Agent && o.Kind != Evaluation:
		return bad("unknown kind of session %q, the kinds are %s and %s", o.Kind, Agent, Evaluation)
	case o.Kind == Evaluation && o.Environment.Setup.LoginShell:
		return bad("setup.login_shell is not for evaluations: such a shell runs files that code under test may have written")
	case (o.Workspace == "") == (o.Snapshot == ""):
		return bad("exactly one of Workspace and Snapshot is required")
	case !o.Environment.AllowUnsafe && unsafeArchives(o.Environment) != "":
		return bad("snapshot.archive_save_dir: writing to %s is not safe: %s", o.Environment.Snapshot.ArchiveSaveDir, unsafeArchives(o.Environment))
	case slices.Contains([]string{spec.TypeDocker, spec.TypeLocal}, o.Provider.Name()) && o.Provider.Name() != o.Environment.Type:
		return bad("the environment has type %s, but the provider is %s", o.Environment.Type, o.Provider.Name())
	}
	return o.Environment.Validate()
}

// unsafeArchives returns the reason why archives may not be saved in the spec's archive_save_dir, or "" if they
// may. The archives contain files that a sandbox has written.
func unsafeArchives(e *spec.Environment) string {
	dir := e.Snapshot.ArchiveSaveDir
	if dir == "" {
		return ""
	}
	if why := hostpath.Unsafe(dir, true); why != "" {
		return why
	}
	if e.File == "" || hostpath.Contains(filepath.Dir(e.File), dir) || hostpath.Contains(".", dir) {
		return ""
	}
	return "it is not below the spec's folder or the working directory"
}

// opError adds the operation op to an error. An error without a class becomes an ErrInfrastructure.
func opError(op string, err error) error {
	if err == nil {
		return nil
	}
	class := fumehood.ClassOf(err)
	if class == nil {
		class = fumehood.ErrInfrastructure
	}
	if inner, ok := err.(*fumehood.Error); ok && inner.Op == "" { //nolint:errorlint // only an unwrapped error
		return &fumehood.Error{Op: op, Class: inner.Class, Err: inner.Err, Hint: inner.Hint}
	}
	return &fumehood.Error{Op: op, Class: class, Err: err}
}

// workDir is the name of the workspace in a session's folder.
const workDir = "work"

// Workspace returns the path of the private workspace on this machine.
func (s *Session) Workspace() string { return filepath.Join(s.folder, workDir) }

func (s *Session) local() bool { return s.env.Type == spec.TypeLocal }

// uploads reports whether containers get a copy of the workspace instead of a mount.
func (s *Session) uploads() bool { return !s.local() && !*s.env.Docker.MountWorkspace }

// once logs a message, unless it has logged the same message with the same attributes before.
func (s *Session) once(log func(string, ...any), msg string, attrs ...any) {
	key := msg + fmt.Sprint(attrs...)
	s.mu.Lock()
	logged := s.logged[key]
	s.logged[key] = true
	s.mu.Unlock()
	if !logged {
		log(msg, attrs...)
	}
}

func (s *Session) checkOpen(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &fumehood.Error{Op: op, Class: fumehood.ErrUnavailable, Err: errors.New("the session is closed")}
	}
	return nil
}

// Close cleans up the runtimes and removes the private workspace, including files of other users that containers
// wrote. If a container is kept, the workspace stays, because it is mounted there. Canceling ctx does not stop
// Close. It may be called more than once: after an error it tries again.
func (s *Session) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	s.closed = true
	runtimes := slices.Clone(s.runtimes)
	s.mu.Unlock()
	var errs []error
	for _, r := range runtimes {
		errs = append(errs, r.end(ctx, false, false))
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.kept {
		s.once(s.log.Info, "the workspace is kept: a kept container has it mounted", "folder", s.folder, "remove", "fumehood cleanup "+s.name)
		return opError("close session", errors.Join(errs...))
	}
	if _, err := os.Lstat(s.folder); err == nil {
		errs = append(errs, s.helper().remove(ctx))
	}
	return opError("close session", errors.Join(errs...))
}
