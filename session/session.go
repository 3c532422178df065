// Package session drives code through a workspace, as a coding benchmark does: an environment spec says
// where the code runs, a private copy of a workspace is what it works in, and runtimes are spawned over
// both, for an agent that changes the workspace or for an evaluation that judges it.
//
// Over a provider that only takes and sends archives (Docker's with docker.TransportEngine), the workspace is
// mounted, and is root's or this machine's user's own. To copy it, to give it to another user, and to read or
// remove what root alone may, it takes one that can list, change and remove files: else that is an
// ErrUnsupported.
//
// It knows fumehood.Provider, and no container engine. Every error is a *fumehood.Error; what the provider
// says is its cause. ErrBusy and ErrStdin are matched with errors.Is, besides the classes.
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
	"github.com/fumehood/fumehood/spec"
	"github.com/fumehood/fumehood/workspace"
)

// Kind is what a session is for.
type Kind string

const (
	// Agent works in the workspace: it has checkpoints, and copies of the assets in the workspace.
	Agent Kind = "agent"
	// Evaluation judges the workspace: it runs eval_commands too, and has the assets mounted read-only.
	Evaluation Kind = "evaluation"
)

// Options say what session is opened. Provider, Environment and Kind are needed, and exactly one of
// Workspace and Snapshot.
type Options struct {
	// Provider makes the containers. It stays the caller's to close, after the session.
	Provider fumehood.Provider
	// Environment says where code runs. Its type must fit the provider.
	Environment *spec.Environment
	Kind        Kind

	// Workspace is a folder of this machine, which is copied and not changed.
	Workspace string
	// Snapshot is a snapshot's file, from which the workspace is restored. The session resumes by that: the
	// spec's resume_commands, if there are any, run in place of its commands.
	Snapshot string

	// Dir holds the private folders of sessions. Empty means $XDG_STATE_HOME/fumehood/session, or
	// .local/state/fumehood/session in the user's home. The daemon must see it where workspaces are mounted.
	Dir string

	// AssetDir is the folder of this machine that the assets' paths start at. Assets are groups of static
	// assets by name, of which a later one overrides an earlier one. With mount_workspace: false those of an
	// evaluation are uploaded in the place of mounts, and read-only only for who is not root.
	AssetDir string
	Assets   []map[string]spec.Asset

	// Limits bound the workspace each time that it is copied, saved or restored: at the start, in checkpoints, and where it
	// comes back from a container.
	Limits workspace.Limits

	// Inputs are written into the workspace before anything runs.
	Inputs []workspace.Input

	// HUID and HGID are the user and group of evaluations whose spec names none. Empty means this
	// process's own.
	HUID, HGID string

	// Logger logs what loosens the isolation, in place of the provider's, which variables of this machine are passed on
	// (never their values), the steps of a build, and where kept containers are. Nil leaves the first to the provider's and
	// logs nothing else.
	Logger *slog.Logger
	// Journal tells what is done in the sandboxes of all its runtimes. Nil tells nothing.
	Journal *slog.Logger
}

// Session is a private workspace and the runtimes over it. Its methods may be called by many goroutines
// at once. Close it.
type Session struct {
	opts   Options
	env    spec.Environment      // with defaults
	assets map[string]spec.Asset // merged
	log    *slog.Logger
	name   string
	folder string // holds what is below, and the owner's mark

	building sync.Mutex // held while the spec's image is built
	built    string     // its id; empty before

	freezing sync.RWMutex // held while containers are frozen, in which no command can be begun

	saving sync.Mutex // held while the workspace is copied, saved, restored or removed
	owner  string     // whom the workspace was given to; empty while it is this machine's user's

	mu       sync.Mutex
	runtimes []*Runtime // that are not cleaned up
	spawned  int
	kept     bool            // a container that is kept has the workspace mounted
	image    string          // the last runtime's that had the workspace mounted
	logged   map[string]bool // what is said once
	finished int             // how many checkpoints there are
	latest   string          // the last one's file
	closed   bool
}

// ErrBusy is in the error of a call that has to wait for a command that runs.
var ErrBusy = errors.New("a command runs already")

// Open makes a private workspace. It starts no container yet. It is all or nothing.
func Open(ctx context.Context, opts Options) (_ *Session, err error) {
	const op = "open session"
	if err := opts.check(); err != nil {
		return nil, failed(op, err)
	}
	s := &Session{
		opts: opts, env: opts.Environment.WithDefaults(), log: opts.Logger, logged: map[string]bool{},
		name: "session-" + strings.ToLower(rand.Text()[:12]),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.assets, err = spec.MergeAssets(opts.Assets...); err != nil {
		return nil, failed(op, err)
	}
	dir := opts.Dir
	if dir == "" {
		if dir, err = owner.StateDir("session"); err != nil {
			return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err, Hint: "set Dir"}
		}
	}
	if dir, err = filepath.Abs(dir); err == nil && s.opts.AssetDir != "" {
		s.opts.AssetDir, err = filepath.Abs(s.opts.AssetDir)
	}
	if err == nil {
		s.folder, err = owner.MakeFolder(dir, s.name, s.env.Docker.KeepContainerAfterClean)
	}
	if err != nil {
		return nil, failed(op, err)
	}
	if err := s.fill(ctx); err != nil {
		return nil, failed(op, errors.Join(err, owner.Discard(s.folder)))
	}
	return s, nil
}

func (o *Options) check() error {
	bad := func(format string, a ...any) error {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	switch {
	case o.Provider == nil || o.Environment == nil:
		return bad("a provider and an environment are needed")
	case o.Kind != Agent && o.Kind != Evaluation:
		return bad("there is no kind of session %q, only %s and %s", o.Kind, Agent, Evaluation)
	case o.Kind == Evaluation && o.Environment.Setup.LoginShell:
		return bad("setup.login_shell is not for evaluations: such a shell runs files that the code under test could have written")
	case (o.Workspace == "") == (o.Snapshot == ""):
		return bad("exactly one of Workspace and Snapshot is needed")
	case !o.Environment.AllowUnsafe && unsafeArchives(o.Environment) != "":
		return bad("snapshot.archive_save_dir: to write in %s is not safe: %s", o.Environment.Snapshot.ArchiveSaveDir, unsafeArchives(o.Environment))
	case slices.Contains([]string{spec.TypeDocker, spec.TypeLocal}, o.Provider.Name()) && o.Provider.Name() != o.Environment.Type:
		return bad("the environment is of type %s, and the provider is %s", o.Environment.Type, o.Provider.Name())
	}
	return nil
}

// unsafeArchives says why a spec may not have archives saved where it wants; empty where it may. What a sandbox has written is in
// them.
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
	return "it is neither below the spec's folder nor below the working directory"
}

// failed says what was being done when err came. What has no class is a failure of ours.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	class := fumehood.ClassOf(err)
	if class == nil {
		class = fumehood.ErrInfrastructure
	}
	if inner, ok := err.(*fumehood.Error); ok && inner.Op == "" { //nolint:errorlint // not one that others wrap
		return &fumehood.Error{Op: op, Class: inner.Class, Err: inner.Err, Hint: inner.Hint}
	}
	return &fumehood.Error{Op: op, Class: class, Err: err}
}

// workDir is the workspace in a session's folder.
const workDir = "work"

// Workspace is the path of the private workspace on this machine.
func (s *Session) Workspace() string { return filepath.Join(s.folder, workDir) }

func (s *Session) local() bool { return s.env.Type == spec.TypeLocal }

// uploads says that containers have a copy of the workspace in place of a mount.
func (s *Session) uploads() bool { return !s.local() && !*s.env.Docker.MountWorkspace }

// once logs a message with these attributes the first time.
func (s *Session) once(log func(string, ...any), msg string, attrs ...any) {
	key := msg + fmt.Sprint(attrs...)
	s.mu.Lock()
	said := s.logged[key]
	s.logged[key] = true
	s.mu.Unlock()
	if !said {
		log(msg, attrs...)
	}
}

func (s *Session) open(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &fumehood.Error{Op: op, Class: fumehood.ErrUnavailable, Err: errors.New("the session is closed")}
	}
	return nil
}

// Close cleans up the runtimes and removes the private workspace, with all that containers wrote in it,
// whoever it belongs to. Where a container is kept the workspace stays, for it is mounted there. Close
// outlives the cancellation of ctx, and may be called again: after an error it tries once more.
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
		s.once(s.log.Info, "the workspace stays, for a kept container has it mounted", "folder", s.folder, "remove", "fumehood cleanup "+s.name)
		return failed("close session", errors.Join(errs...))
	}
	if _, err := os.Lstat(s.folder); err == nil {
		errs = append(errs, s.helper().remove(ctx))
	}
	return failed("close session", errors.Join(errs...))
}
