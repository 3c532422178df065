// Package provider is for implementers of sandbox providers. It defines the interfaces that a provider implements,
// and implements everything that all providers share.
//
// A provider is a fumehood.Provider. Its Start validates the spec, generates a name if it lacks one, creates the
// sandbox, and returns a fumehood.Sandbox made by [New] from its [Backend]. Its Close closes those sandboxes. The
// other backend interfaces are [ServiceBackend], [FileBackend] and [ProcessBackend]. They are small, because this
// package validates commands, enforces timeouts and output caps, wraps errors and writes the journal. Optional
// capabilities are separate interfaces, such as [Connector] for a service and [Opener] for a provider. A call that
// needs a missing capability is an ErrUnsupported. Package conformance tests a provider.
package provider

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/fumehood/fumehood"
)

// Backend is what a provider implements for one started sandbox. New adds validation, timeouts, output caps and
// error wrapping.
//
// A backend returns errors of this module's classes: an *Error without Op, Service and Path, which the caller adds.
// An error without a class counts as ErrInfrastructure. Kernel errors are classified as follows: ENOENT and ELOOP
// are ErrNotFound, ENAMETOOLONG is ErrLimit, EXDEV is ErrUnsupported, EBUSY and ETXTBSY are ErrPermission. Errors of
// permission, existence and file type have the class of that name. Errors of ServiceBackend.Start have the classes of
// a start instead, such as ErrProgramNotFound, ErrNotExecutable, ErrDirNotFound and ErrUserNotFound.
type Backend interface {
	// Info describes the sandbox, with the default service first.
	Info() fumehood.Info
	// Service returns the backend of one of the services in Info.
	Service(name string) ServiceBackend
	// Close removes the sandbox. It has its own deadline, continues after cancellation of ctx, and is called again
	// if it failed.
	Close(ctx context.Context) error
}

// ServiceBackend runs commands and accesses files in one service. It receives validated commands. Its methods may
// be called by multiple goroutines concurrently.
type ServiceBackend interface {
	// Start starts cmd, at most once. If it returns an error, nothing runs. Dir is absolute, and an empty User
	// means the service's own. The backend adds the service's environment, including Spec.Env, to Env. The caller
	// handles Timeout, the output caps, Stdout, Stderr and reading from Stdin. The backend handles Grace, KillRest,
	// Rlimits, CPUTime and TTY; what it cannot do is an ErrUnsupported, but KillRest then sets Exit.Leaked. Input arrives
	// through ProcessBackend.Write; without input, the caller calls CloseStdin. A backend that cannot bypass the
	// sandbox's own programs ignores ViaEngine.
	//
	// If live is set, out receives all output as it arrives. Otherwise it may receive only what the caps keep, with
	// the totals in Exit or by GapBackend.OnGap, and must not block the program. Output of a sandbox that ends is not lost
	// if it was written some time before. Start may then return before the command has started, and Wait returns the
	// error of a failed start. ctx limits the start only.
	Start(ctx context.Context, cmd fumehood.Cmd, live bool, out Sink) (ProcessBackend, error)
	// Files returns the service's files, accessed as user, which is as in Cmd.User. It does not check the user: if
	// there is no such user, the operations fail.
	Files(user string) FileBackend
}

// EngineFiler is an optional interface of a ServiceBackend whose Files depend on a helper in the sandbox. It gives
// access to files without that helper.
type EngineFiler interface {
	// EngineFiles is like Files, without a helper in the sandbox.
	EngineFiles(user string) FileBackend
}

// FileBackend reads and changes files with the permissions of one user. Its paths are absolute, not cleaned, and
// free of NUL bytes. Its methods may be called by multiple goroutines concurrently.
type FileBackend interface {
	// Stat describes path without following a link at path.
	Stat(ctx context.Context, path string) (fumehood.FileInfo, error)
	// Open reads length bytes of a regular file from offset on, or fewer if the file ends before. A negative length
	// reads to the end. It follows links inside the sandbox only.
	Open(ctx context.Context, path string, offset, length int64) (io.ReadCloser, fumehood.FileInfo, error)
	// Write creates or replaces a regular file with exactly size bytes from r, and creates missing parent
	// directories. Fewer bytes are an ErrConfig. Afterwards the file has opts.Mode, whether or not it existed
	// before.
	Write(ctx context.Context, path string, r io.Reader, size int64, opts fumehood.WriteOptions) error
	// Walk is Service.Walk, limited to depth levels below root: 0 means root alone, a negative depth all levels. If
	// root cannot be described, it yields one error without a path. If root ends in "/.", a link there is
	// followed.
	Walk(ctx context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error]
	// Change performs one file operation. An unknown Op is an ErrUnsupported.
	Change(ctx context.Context, c Change) error
	// Upload extracts a tar stream into the directory dir, which must exist. Data that is not an archive is an
	// ErrConfig.
	Upload(ctx context.Context, dir string, tar io.Reader) error
	// Download returns path, a file or a tree, as a tar stream. Its first entry has path's base name.
	Download(ctx context.Context, path string) (io.ReadCloser, error)
}

// Operations of a Change. Each implements the method of Service with the same name.
const (
	ChangeMkdir   = "mkdir"
	ChangeRemove  = "remove"
	ChangeRename  = "rename"
	ChangeSymlink = "symlink"
	ChangeChmod   = "chmod"
	ChangeChown   = "chown"
)

// Change is one file operation.
type Change struct {
	Op        string      // one of the constants above
	Path      string      // absolute
	Target    string      // rename: the new absolute path; symlink: the link's target
	Mode      fs.FileMode // mkdir and chmod: permission, set-id and sticky bits
	Owner     string      // chown; mkdir: MkdirOptions.Owner
	Recursive bool        // mkdir: create parents; remove and chown: include the directory's contents
}

// Sink receives a command's output in order, from one goroutine at a time. It must not keep p. It may block, which
// blocks the program.
type Sink func(s fumehood.Stream, p []byte)

// ProcessBackend is one running command.
type ProcessBackend interface {
	// Wait blocks until the command has ended and its output is delivered. It does not wait for processes that the
	// command leaves behind. It is called once, with a context that does not end.
	Wait(ctx context.Context) (Exit, error)
	// Write writes to standard input; CloseStdin closes it. Writing to an ended program is an error.
	Write(p []byte) (int, error)
	CloseStdin() error
	// Signal sends a signal by its Linux number.
	Signal(ctx context.Context, sig int) error
	// Kill kills the command with all its descendants, with SIGTERM and, after KillAfter, SIGKILL. It makes Wait
	// return soon. It returns false if some of them may still run. It may be called after the end.
	Kill(ctx context.Context) (complete bool)
	// Resize sets the terminal's size in characters.
	Resize(ctx context.Context, rows, cols uint16) error
}

// Reattacher is an optional interface of a ServiceBackend whose detached commands outlive the process that started
// them. Those commands are DetachedBackends.
type Reattacher interface {
	// Detached lists the detached commands, running and ended, by number.
	Detached(ctx context.Context) ([]DetachedInfo, error)
	// Join attaches to one of them. ctx limits the call only.
	Join(ctx context.Context, info DetachedInfo, out Sink) (DetachedBackend, error)
}

// DetachedInfo describes a detached command, which another process may have started.
type DetachedInfo struct {
	ID      int    // from 1
	User    string // the user that detached it, as in Cmd.User; empty if that is the service's own user
	Args    []string
	Started time.Time // on this host's clock
	Ended   bool
	Stdin   bool // it was started with StdinPipe
}

// GapBackend is an optional interface of a ProcessBackend whose sink may miss output.
type GapBackend interface {
	// OnGap registers skip, which is called in order with the sink when n bytes of a stream are not held. OnGap is
	// called once, before Wait.
	OnGap(skip func(s fumehood.Stream, n int64))
}

// TimedBackend is an optional interface of a ProcessBackend whose sandbox enforces the command's timeout. Its Exit is then
// TimedOut.
type TimedBackend interface{ EnforceTimeout() }

// DetachedBackend is a detached command that outlives this process. The sandbox enforces its timeout. Its output is
// delivered once Wait is called: first what is held, then what arrives.
type DetachedBackend interface {
	ProcessBackend
	GapBackend
	// ID is the command's number in its service.
	ID() int
	// Forget drops what is held of an ended command.
	Forget(ctx context.Context) error
}

// Exit is how a command ended, as seen by the backend. Outcome is TimedOut only if the sandbox enforces the timeout:
// of a TimedBackend, or of a detached command.
type Exit struct {
	Outcome      fumehood.Outcome
	Code         int // the program's own; 128+n for signal n; -1 when lost; the caller replaces it after a timeout
	Signal       int
	Reason       string // the reason, if it is lost
	Killed       bool   // a caller, perhaps another process, has killed it or sent it SIGKILL
	CausedInside bool   // code in the sandbox caused the loss, if it is lost
	// Alone reports that no other command of the service ran at any time while this one did. Then Usage.OOMKills are
	// its own, and make it OutOfMemory unless it exited with 0. The service's own program is a command, health
	// checks are not.
	Alone bool
	// Totals are the total bytes of standard output and standard error, if the sink did not receive them all.
	Totals *[2]int64
	// Duration is how long the command ran, if the sandbox measured it; else 0.
	Duration time.Duration
	Usage    fumehood.Usage
	// Judged reports that another provider has judged the end: Reason says already what Usage and limits have to do with it.
	Judged bool
	// Leaked reports that the sandbox was to kill the command's processes, but could not kill all.
	Leaked bool
}

// Connector is an optional interface of a ServiceBackend that describes how a person connects.
type Connector interface {
	// Connection is Service.Connection for user, which is as in Cmd.User and not checked. Empty means the service's
	// own user.
	Connection(ctx context.Context, user string) (fumehood.Connection, error)
}

// Forwarder is an optional interface of a ServiceBackend whose ports can be reached from this machine.
type Forwarder interface {
	// Forward is Service.Forward for a validated port.
	Forward(ctx context.Context, p fumehood.Port) (fumehood.Port, error)
	// Dial is Service.Dial for a validated port.
	Dial(ctx context.Context, port int) (fumehood.Conn, error)
}

// AllKiller is an optional interface of a ServiceBackend that can kill everything that its commands run and have left.
type AllKiller interface {
	// KillAll is Service.KillAll. Exit.Killed is set for the commands that it ends.
	KillAll(ctx context.Context) error
}

// Stopper is an optional interface of a Backend. It kills everything that runs in a kept sandbox and keeps the
// rest.
type Stopper interface {
	// Stop has its own deadline, and continues after cancellation of ctx.
	Stop(ctx context.Context) error
}

// Freezer is an optional interface of a Backend that can pause a sandbox.
type Freezer interface {
	// Freeze is Sandbox.Freeze.
	Freeze(ctx context.Context) (thaw func(context.Context) error, err error)
}

// Checker is an optional interface of a Backend that notices if something has ended that ran at the sandbox's
// start.
type Checker interface {
	// Check returns an ErrUnavailable that names what has ended.
	Check(ctx context.Context) error
}
