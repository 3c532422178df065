package fumehood

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"
)

// Provider makes sandboxes. Its methods may be called by many goroutines at once.
type Provider interface {
	// Name is the provider's name as the command line knows it: "docker", "local".
	Name() string
	// Start makes a sandbox and returns when commands can be run in it. It is all or nothing: on an
	// error, whatever had been made is removed again. A field of spec that the provider cannot
	// honour is an ErrUnsupported, a wrong one an ErrConfig.
	Start(ctx context.Context, spec Spec) (*Sandbox, error)
	// Close removes every sandbox that this provider still holds, except kept ones. It outlives the
	// cancellation of ctx and may be called twice.
	Close(ctx context.Context) error
}

// Backend is what a provider supplies for one started sandbox. Sandbox and Service do validation,
// time limits, output caps and error wrapping once, over it.
//
// A backend returns errors of this module's classes: an *Error without Op, which is filled in above
// it. An error without a class counts as ErrInfrastructure.
type Backend interface {
	// Info describes the sandbox; the default service comes first.
	Info() Info
	// Service returns the backend of one of Info's services.
	Service(name string) ServiceBackend
	// Close removes the sandbox. It has a deadline of its own, outlives the cancellation of ctx, and is
	// called again if it failed.
	Close(ctx context.Context) error
}

// ServiceBackend runs commands and reaches files in one service. Its commands are validated; its methods
// may be called by many goroutines at once.
type ServiceBackend interface {
	// Start hands cmd over, at most once. When it returns an error, nothing runs. Timeout is the caller's
	// business. With live, out is to get the output as it comes, and all of it; else it suffices that it
	// gets what the caps keep, and Exit tells the totals; and then Start may return before the command has
	// started: that nothing runs is an error of Wait. ctx bounds the start only.
	Start(ctx context.Context, cmd Cmd, live bool, out Sink) (ProcessBackend, error)
	// Files returns the service's files as user, a Cmd.User, may use them. It does nothing yet: that there
	// is no such user is the error of what is done then.
	Files(user string) FileBackend
}

// DirectFiler is the capability of a ServiceBackend to reach files without the help of anything in the sandbox, where
// its Files have such help.
type DirectFiler interface {
	// DirectFiles is Files with nothing in the sandbox that helps.
	DirectFiles(user string) FileBackend
}

// FileBackend reads and changes files with the rights of one user. Its paths are absolute, not cleaned,
// and free of NUL bytes; its methods may be called by many goroutines at once.
type FileBackend interface {
	// Stat describes path without following a link that it names.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Open reads length bytes of a regular file from offset on, or fewer where it ends before; a negative
	// length means all. It follows links inside the sandbox only.
	Open(ctx context.Context, path string, offset, length int64) (io.ReadCloser, FileInfo, error)
	// Write replaces or makes a regular file of exactly size bytes from r.
	Write(ctx context.Context, path string, r io.Reader, size int64, opts WriteOptions) error
	// Walk is Service.Walk, no more than depth levels below root; a negative depth means all.
	Walk(ctx context.Context, root string, depth int) iter.Seq2[WalkEntry, error]
	// Change does one thing to a file. What it does not know is an ErrUnsupported.
	Change(ctx context.Context, c Change) error
	// Upload extracts a tar stream into the directory dir, which must exist.
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
	Op     string      // one of the constants above
	Path   string      // absolute
	Target string      // of a rename, the new path, which is absolute; of a symlink, what the link says
	Mode   fs.FileMode // of a mkdir or a chmod: permission, set-id and sticky bits
	Owner  string      // of a chown
	All    bool        // of a mkdir, with the parents; of a remove or chown, with what is in the directory
}

// Sink receives a command's output in order, from one goroutine at a time. It must not keep p and may
// block, which then holds the program back.
type Sink func(s Stream, p []byte)

// ProcessBackend is one running command.
type ProcessBackend interface {
	// Wait blocks until the command has ended and its output is delivered. It is called once, with a
	// context that does not end.
	Wait(ctx context.Context) (Exit, error)
	// Write writes to standard input; CloseStdin ends it. Writing to an ended program is an error.
	Write(p []byte) (int, error)
	CloseStdin() error
	// Signal sends a signal by its Linux number.
	Signal(ctx context.Context, sig int) error
	// Kill ends the command with all its descendants and makes Wait return soon. It reports false where
	// some may still run. It may be called after the end.
	Kill(ctx context.Context) (complete bool)
	// Resize sets the terminal's size in characters.
	Resize(ctx context.Context, rows, cols uint16) error
}

// Rejoiner is the capability of a ServiceBackend to keep detached commands beyond the process that started
// them. Those are DetachedBackends.
type Rejoiner interface {
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
	// Gaps has skip called, in order with the sink, where n bytes of a stream are not held. It is called before
	// Wait.
	Gaps(skip func(s Stream, n int64))
	// Forget drops what is held of a command that has ended.
	Forget(ctx context.Context) error
}

// Exit is how a command ended, as the backend saw it. Outcome is TimedOut only where the sandbox keeps the
// time of a detached command.
type Exit struct {
	Outcome Outcome
	Code    int // the program's own; 128+n for signal n; -1 when lost
	Signal  int
	Reason  string // the reason, where it is lost
	Inside  bool   // the reason is something that was done in the sandbox, where it is lost
	// Totals are the bytes of standard output and error, where the sink did not get them all.
	Totals *[2]int64
	// Duration is how long it ran, where the sandbox has measured that; else 0.
	Duration time.Duration
	Usage    Usage
	// Leaked says that some of its processes could not be killed, where the sandbox was to do that.
	Leaked bool
}

// Connector is the capability of a ServiceBackend to say how a person gets in.
type Connector interface {
	Connection(ctx context.Context) (Connection, error)
}

// Forwarder is the capability of a ServiceBackend to reach its ports from this machine.
type Forwarder interface {
	// Forward is Service.Forward, of a port that is checked.
	Forward(ctx context.Context, p Port) (Port, error)
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

// Connection says how a person gets into a running service.
type Connection struct {
	Container string   // the container's name
	Shell     []string // a command for the host that opens a shell in it, by the program Spec.Binary
	VSCode    []string // a command for the host that opens it in Visual Studio Code
	Ports     []Port   // that can be reached, in the order of Spec.Ports or of the Compose file
}

// Info describes a sandbox.
type Info struct {
	Name     string        // the sandbox's name, which under docker is the Compose project's
	Provider string        // the provider's name
	Services []ServiceInfo // the default service first

	Labels     map[string]string // of its spec, or as Assign has set them
	ConfigFile string            // the absolute path of the file that describes it; empty where there is none
	EnvNames   []string          // of the variables that its spec sets, or its Compose project sees, sorted
	Unenforced []string          // the limits that the daemon does not hold, which was allowed: "memory", "swap", "pids", "cpus"
}

// ServiceInfo describes a service.
type ServiceInfo struct {
	Name      string
	Container string // the container's name; empty where there is none
	Image     string // the image's reference; empty where there is none
	User      string // the user that commands run as by default; empty means root
	Dir       string // the absolute directory that relative paths are below
	Runtime   string // the container runtime; empty where there is none
}

// FileInfo describes a file in a service.
type FileInfo struct {
	Name       string      // the base name
	Size       int64       // bytes; 0 for what is no regular file
	Mode       fs.FileMode // type and permissions
	ModTime    time.Time
	LinkTarget string // where a link points to; empty for all else
	UID, GID   int    // of the owner; -1 where they are not known
}

// WalkEntry describes a file that Walk met.
type WalkEntry struct {
	Path string // relative to the root, clean, with slashes; "." for the root itself
	FileInfo
}

// WriteOptions says how a file is written. The zero value makes missing parents and gives a new file
// mode 0644.
type WriteOptions struct {
	Mode fs.FileMode // permission bits of the file; 0 means 0644
	// Owner is who the file is to belong to, as in Cmd.User; without a group, the user's own. Empty gives
	// a new file to the user who writes it, and leaves another its owner.
	Owner string
	// Atomic writes a new file beside the path and then puts it there: who reads meanwhile gets the old
	// content or the new, never a part, and a write that fails changes nothing. It takes the right to
	// write to the directory, not to the file. The file is a new one: it is the writer's unless Owner says
	// otherwise, and hard links keep the old content. A link at the path is followed, as without Atomic.
	Atomic bool
}

// MkdirOptions says how a directory is made.
type MkdirOptions struct {
	Mode fs.FileMode // permission, set-id and sticky bits; 0 means 0755
	// Parents makes the directories above it that are missing, with mode 0755, and takes a directory that
	// is there, whatever its mode, for made.
	Parents bool
}

// RemoveOptions says what is removed.
type RemoveOptions struct {
	Recursive bool // a directory with all that is in it
}
