// Package provider is for those who make sandboxes: what a provider supplies, and what is made of that once for all of them.
//
// A provider is a fumehood.Provider. Its Start validates the spec, gives it a name where it has none, makes the sandbox, and
// returns what [New] makes of its [Backend], a fumehood.Sandbox; its Close closes those sandboxes. Under a Backend are
// [ServiceBackend], [FileBackend] and [ProcessBackend], which are small: commands are validated, time limits and output caps
// kept, errors wrapped and the journal written above them, once. What only some can do is an interface of its own, such as
// [Connector] of a service and [Opener] of a provider: where it is missing, what needs it is an ErrUnsupported. Package
// conformance tests a provider.
package provider

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"github.com/fumehood/fumehood"
)

// Backend is what a provider supplies for one started sandbox. Sandbox and Service do validation,
// time limits, output caps and error wrapping once, over it.
//
// A backend returns errors of this module's classes: an *Error without Op, Service and Path, which are filled in above
// it. An error without a class counts as ErrInfrastructure. Of the kernel's errors ENOENT and ELOOP are an ErrNotFound,
// ENAMETOOLONG an ErrLimit, EXDEV an ErrUnsupported, and those of permission, existence and kind the class of that name.
type Backend interface {
	// Info describes the sandbox; the default service comes first.
	Info() fumehood.Info
	// Service returns the backend of one of Info's services.
	Service(name string) ServiceBackend
	// Close removes the sandbox. It has a deadline of its own, outlives the cancellation of ctx, and is
	// called again if it failed.
	Close(ctx context.Context) error
}

// ServiceBackend runs commands and reaches files in one service. Its commands are validated; its methods
// may be called by many goroutines at once.
type ServiceBackend interface {
	// Start hands cmd over, at most once. When it returns an error, nothing runs. Dir is absolute, and User empty for the
	// service's own. The service's environment, Spec.Env included, is the backend's to add to Env. Timeout, Stdout, Stderr
	// and what is read of Stdin are the caller's business: input comes by ProcessBackend.Write, and CloseStdin where there is
	// none. A backend without a way around the sandbox's own programs ignores ViaEngine.
	//
	// With live, out gets all output as it comes. Without, it may get no more than the caps keep, with the totals in Exit, and
	// Start may return before the command has started: a failed start is then an error of Wait. ctx bounds the start only.
	Start(ctx context.Context, cmd fumehood.Cmd, live bool, out Sink) (ProcessBackend, error)
	// Files returns the service's files as user, a Cmd.User, may use them. It does nothing yet: that there
	// is no such user is the error of what is done then.
	Files(user string) FileBackend
}

// EngineFiler is the capability of a ServiceBackend to reach files without the help of anything in the sandbox, where
// its Files have such help.
type EngineFiler interface {
	// EngineFiles is Files with nothing in the sandbox that helps.
	EngineFiles(user string) FileBackend
}

// FileBackend reads and changes files with the rights of one user. Its paths are absolute, not cleaned,
// and free of NUL bytes; its methods may be called by many goroutines at once.
type FileBackend interface {
	// Stat describes path without following a link that it names.
	Stat(ctx context.Context, path string) (fumehood.FileInfo, error)
	// Open reads length bytes of a regular file from offset on, or fewer where it ends before; a negative
	// length means all. It follows links inside the sandbox only.
	Open(ctx context.Context, path string, offset, length int64) (io.ReadCloser, fumehood.FileInfo, error)
	// Write replaces or makes a regular file of exactly size bytes from r, and the directories above it. Fewer bytes are an
	// ErrConfig. The file has opts.Mode afterwards, whether it is new or not.
	Write(ctx context.Context, path string, r io.Reader, size int64, opts fumehood.WriteOptions) error
	// Walk is Service.Walk, no more than depth levels below root: 0 for root alone, and a negative depth for all. Where root
	// cannot be described there is one error, without a path. A root that ends in "/." is what a link points to.
	Walk(ctx context.Context, root string, depth int) iter.Seq2[fumehood.WalkEntry, error]
	// Change does one thing to a file. What it does not know is an ErrUnsupported.
	Change(ctx context.Context, c Change) error
	// Upload extracts a tar stream into the directory dir, which must exist. What is no archive is an ErrConfig.
	Upload(ctx context.Context, dir string, tar io.Reader) error
	// Download returns path, a file or a tree, as a tar stream whose first entry is path's base name.
	Download(ctx context.Context, path string) (io.ReadCloser, error)
}

// What a Change does. Each is what the method of Service of that name promises.
const (
	ChangeMkdir   = "mkdir"
	ChangeRemove  = "remove"
	ChangeRename  = "rename"
	ChangeSymlink = "symlink"
	ChangeChmod   = "chmod"
	ChangeChown   = "chown"
)

// Change is one thing to be done to a file.
type Change struct {
	Op        string      // one of the constants above
	Path      string      // absolute
	Target    string      // of a rename, the new path, which is absolute; of a symlink, what the link says
	Mode      fs.FileMode // of a mkdir or a chmod: permission, set-id and sticky bits
	Owner     string      // of a chown
	Recursive bool        // of a mkdir, with the parents; of a remove or chown, with what is in the directory
}

// Sink receives a command's output in order, from one goroutine at a time. It must not keep p and may
// block, which then holds the program back.
type Sink func(s fumehood.Stream, p []byte)

// ProcessBackend is one running command.
type ProcessBackend interface {
	// Wait blocks until the command has ended and its output is delivered, and not for what it has left running. It is
	// called once, with a context that does not end.
	Wait(ctx context.Context) (Exit, error)
	// Write writes to standard input; CloseStdin ends it. Writing to an ended program is an error.
	Write(p []byte) (int, error)
	CloseStdin() error
	// Signal sends a signal by its Linux number.
	Signal(ctx context.Context, sig int) error
	// Kill ends the command with all its descendants, by SIGTERM and after KillAfter by SIGKILL, and makes Wait return soon.
	// It reports false where some may still run. It may be called after the end.
	Kill(ctx context.Context) (complete bool)
	// Resize sets the terminal's size in characters.
	Resize(ctx context.Context, rows, cols uint16) error
}

// Reattacher is the capability of a ServiceBackend to keep detached commands beyond the process that started
// them. Those are DetachedBackends.
type Reattacher interface {
	// Detached lists them, those that run and those that have ended, in the order of their numbers.
	Detached(ctx context.Context) ([]DetachedInfo, error)
	// Join looks at one of them. ctx bounds the call only.
	Join(ctx context.Context, info DetachedInfo, out Sink) (DetachedBackend, error)
}

// DetachedInfo describes a detached command that may be another process's.
type DetachedInfo struct {
	ID      int    // from 1 on
	User    string // who detached it, as Cmd.User has it, where that is not the service's own user; else empty
	Args    []string
	Started time.Time // on this host's clock
	Ended   bool
	Stdin   bool // it was started with StdinPipe
}

// DetachedBackend is a detached command that outlives this process. The sandbox keeps its wall limit. Its output
// is delivered once Wait is called: what is held of it, and then what comes.
type DetachedBackend interface {
	ProcessBackend
	// ID is the command's number among all that the service has.
	ID() int
	// OnGap has skip called, in order with the sink, where n bytes of a stream are not held. It is called before
	// Wait.
	OnGap(skip func(s fumehood.Stream, n int64))
	// Forget drops what is held of a command that has ended.
	Forget(ctx context.Context) error
}

// Exit is how a command ended, as the backend saw it. Outcome is TimedOut only where the sandbox keeps the
// time of a detached command.
type Exit struct {
	Outcome      fumehood.Outcome
	Code         int // the program's own; 128+n for signal n; -1 when lost
	Signal       int
	Reason       string // the reason, where it is lost
	CausedInside bool   // the reason is something that was done in the sandbox, where it is lost
	// Totals are the bytes of standard output and error, where the sink did not get them all.
	Totals *[2]int64
	// Duration is how long it ran, where the sandbox has measured that; else 0.
	Duration time.Duration
	Usage    fumehood.Usage
	// Leaked says that some of its processes could not be killed, where the sandbox was to do that.
	Leaked bool
}

// Connector is the capability of a ServiceBackend to say how a person gets in.
type Connector interface {
	// Connection is Service.Connection, as user, a Cmd.User that is not checked; empty means the service's own.
	Connection(ctx context.Context, user string) (fumehood.Connection, error)
}

// Forwarder is the capability of a ServiceBackend to reach its ports from this machine.
type Forwarder interface {
	// Forward is Service.Forward, of a port that is checked.
	Forward(ctx context.Context, p fumehood.Port) (fumehood.Port, error)
}

// Stopper is the capability of a Backend to end all that runs in a kept sandbox, and to leave the rest of it.
type Stopper interface {
	// Stop has a deadline of its own, and outlives the cancellation of ctx.
	Stop(ctx context.Context) error
}

// Freezer is the capability of a Backend to stop all that runs in a sandbox for a while.
type Freezer interface {
	// Freeze is Sandbox.Freeze.
	Freeze(ctx context.Context) (thaw func(context.Context) error, err error)
}

// Checker is the capability of a Backend to notice that something has ended that ran when the sandbox was started.
type Checker interface {
	// Check returns an ErrUnavailable that says what has ended.
	Check(ctx context.Context) error
}
