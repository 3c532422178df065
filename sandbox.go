package fumehood

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"log/slog"
)

// Provider starts sandboxes. Its methods may be called by multiple goroutines concurrently. Optional capabilities
// are defined in package provider and in the packages of the providers.
type Provider interface {
	// Name returns the provider's name as used on the command line: "docker", "local".
	Name() string
	// Start starts a sandbox and returns when commands can run in it; ctx limits the start only. It is all or
	// nothing: on an error, everything created so far is removed. A field of spec that the provider cannot honor is
	// an ErrUnsupported, an invalid one an ErrConfig. After Close it is an ErrUnavailable.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Close removes every sandbox that this provider still holds, except kept ones. It ends starts that are under way
	// or waits for them. It continues after cancellation of ctx. It may be called again: after an error, that tries
	// again what is left.
	Close(ctx context.Context) error
}

// Sandbox is a started environment. As a Service, it is its default service. Its methods may be called by multiple
// goroutines concurrently.
type Sandbox interface {
	Service

	// Info describes the sandbox.
	Info() Info
	// Lookup returns the service with that name, or an ErrConfig that lists the existing names.
	Lookup(name string) (Service, error)
	// Close kills everything that runs in the sandbox and removes it. It continues after cancellation of ctx and
	// has its own deadline. It may be called again: after a success it does nothing, after an error it retries.
	// Calls after Close fail with ErrUnavailable.
	Close(ctx context.Context) error
	// Stop kills everything that runs in a kept sandbox (Spec.Keep) and leaves the sandbox otherwise unchanged, for
	// inspection. After Stop, all calls except Close fail with ErrUnavailable. It is an ErrConfig if the sandbox is
	// not kept, and an ErrUnsupported if the provider cannot do it.
	Stop(ctx context.Context) error
	// Freeze pauses every process of the sandbox, in all services, until thaw is called. A frozen sandbox answers
	// no calls, and the timeouts of its commands keep running. If Freeze succeeds, thaw must be called; it
	// continues after cancellation of its context. Freeze is an ErrUnsupported if the provider, or a daemon without
	// control groups, cannot freeze.
	Freeze(ctx context.Context) (thaw func(context.Context) error, err error)
	// Check checks that an unused sandbox is still in the state in which it was started. Its default service must
	// respond and, if the provider can tell, every process that ran at its start must still run. Otherwise it
	// returns an error that names what ended.
	Check(ctx context.Context) error
	// Assign replaces the labels of a sandbox that was started before its purpose was known. Info and later journal
	// lines have the new labels; objects already created in an Engine keep the old ones. Assign must be called
	// before the sandbox is used. Labels that Spec.Labels would not allow are an ErrConfig.
	Assign(labels map[string]string) error
	// Record starts recording all activity in the sandbox to a journal. It is for reopened sandboxes; a sandbox
	// that was started has the journal of its spec. Package journal creates journals.
	Record(to *slog.Logger)
	// Phase marks the beginning of a phase in the sandbox's journal. The caller calls end at its end.
	Phase(name string) (end func(error))
}

// Service is one service of a sandbox, in which commands run and files are stored.
type Service interface {
	Files

	// ServiceInfo describes the service. Its User is the one given to As, if any.
	ServiceInfo() ServiceInfo
	// As returns the same service for another of its users. Commands with an empty User run as that user, and files
	// are accessed with that user's permissions. user is as in Cmd.User; empty means the service's own user. As
	// does not check that the user exists: the first use reports an ErrUserNotFound.
	As(user string) Service
	// ViaEngine returns the same service, accessed without the help of any process in the sandbox. Every command
	// runs as with Cmd.ViaEngine. Under docker, files are accessed through the Engine's archive calls, with their
	// restrictions (docs/promises.md). Use it where code under test must not be trusted. Other providers have no
	// helper in the sandbox for files, so file access is unchanged.
	ViaEngine() Service

	// Exec runs cmd to its end. An error means that we failed, or that the program could not be started
	// (ErrNotStarted). How a program that ran has ended is in the Result, whatever its exit code. If ctx ends
	// first, the command is killed and the error is an ErrCanceled.
	Exec(ctx context.Context, cmd Cmd) (*Result, error)
	// Start starts cmd and returns while it runs. When ctx ends, the command is killed, unless it is detached.
	Start(ctx context.Context, cmd Cmd) (Process, error)
	// Stream runs cmd and yields all of its output as it arrives, and finally its Result. The program blocks while
	// the loop body is busy. Leaving the loop early kills the command.
	Stream(ctx context.Context, cmd Cmd) iter.Seq2[Event, error]

	// KillAll kills the processes of all commands of the service, of every user, and what ended commands left: also
	// those in sessions of their own, and double-forked ones. It spares the service's own program and the processes that
	// this has started, and other services. It returns when they are gone, within about a minute. The commands, also
	// detached ones, then end as Signaled with the Reason "killed by the caller". A command that begins meanwhile is
	// not killed. Processes that could not be killed are an ErrPermission that states their number. It is an
	// ErrUnsupported where nothing in the sandbox can find all processes (the local provider, the Engine transport).
	KillAll(ctx context.Context) error

	// Processes returns the service's detached commands in start order: running ones, and ended ones until they are
	// forgotten. The list remains after the sandbox is closed. In a kept sandbox, RefreshProcesses adds commands
	// started by other processes.
	Processes() []Process
	// Process returns the detached command with that number, or an ErrConfig if it is not listed.
	Process(id int) (Process, error)
	// RefreshProcesses looks up the detached commands of a kept sandbox. Afterwards, Processes includes commands
	// started by other processes, and excludes those forgotten by others. They can be followed, awaited, written
	// to, signaled, killed and forgotten like this process's own. Their output is stored in the sandbox, and their
	// Results keep at most DefaultOutputCap of it. It is an ErrUnsupported if the sandbox is not kept or the
	// provider does not support it.
	RefreshProcesses(ctx context.Context) error

	// Connection describes how a person connects to the service, or returns ErrUnsupported. The shell runs as the
	// user given to As.
	Connection(ctx context.Context) (Connection, error)
	// Forward listens on a port of this machine until the sandbox is closed. The sandbox passes each connection to
	// the service's port p.Container from the inside, so the sandbox needs no network. p.Host 0 means any free
	// port, and an empty p.Address means 127.0.0.1. Forward returns the address on which it listens, which
	// Connection then lists too. An address in use is an ErrConfig. It is an ErrUnsupported where nothing can pass
	// on connections (the local provider, the Engine transport).
	Forward(ctx context.Context, p Port) (Port, error)
	// Dial connects to a TCP port of the service from the inside, as for a connection that Forward passes on, but
	// nothing listens on this machine. ctx limits only the call. The connection ends with the sandbox; the caller
	// must close it before that. A port at which no program listens is an ErrUnavailable, one outside 1 to 65535 an
	// ErrConfig, and too many open connections are an ErrLimit. It is an ErrUnsupported where Forward is.
	Dial(ctx context.Context, port int) (Conn, error)
}

// Conn is a connection to a port of a service. One goroutine may read while another one writes, and any may close it.
type Conn interface {
	// Read reads what the program sends. It returns io.EOF when the program has ended its direction, and another error
	// if the connection broke: the program or its sandbox has ended, or the connection was closed.
	io.Reader
	// Write sends to the program. It blocks while the program does not read.
	io.Writer
	// CloseWrite ends the direction to the program, which can still send.
	CloseWrite() error
	// Close ends both directions. It may be called again.
	io.Closer
}

// Files gives access to the files of a service. A relative path is resolved against the service's directory. Paths
// are not cleaned: "a/.." may differ from "." if a is a symbolic link.
type Files interface {
	// ReadFile returns the content of a regular file. Links are followed, but only inside the sandbox. A file over
	// the limit is an ErrTooLarge.
	ReadFile(ctx context.Context, path string, opts ReadOptions) ([]byte, error)
	// ReadRange returns length bytes of a regular file, starting at offset. It returns fewer if the file ends
	// before, and none if it ends before offset. A length over MaxReadFile is an ErrTooLarge. Links are followed as
	// by ReadFile.
	ReadRange(ctx context.Context, path string, offset, length int64) ([]byte, error)
	// Open returns the content of a regular file as a stream, and the FileInfo at the time of opening. The caller
	// must close the stream. Links are followed as by ReadFile. A read after the end of ctx fails.
	Open(ctx context.Context, path string) (io.ReadCloser, FileInfo, error)
	// WriteFile creates or replaces a regular file, and creates missing parent directories.
	WriteFile(ctx context.Context, path string, data []byte, opts WriteOptions) error
	// WriteFrom is like WriteFile with exactly size bytes from a reader. A reader with fewer bytes is an ErrConfig,
	// and so is a negative size.
	WriteFrom(ctx context.Context, path string, r io.Reader, size int64, opts WriteOptions) error
	// Stat describes path. It does not follow a link at path.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// List describes the entries of a directory, sorted by name. It follows a link at dir, but not links in it. A
	// list over MaxReadFile bytes, about a million names, is an ErrTooLarge.
	List(ctx context.Context, dir string) ([]FileInfo, error)
	// Walk describes root and everything below it. A directory comes before its entries, which are sorted by name.
	// Links are described, never followed, including root. An entry that cannot be described, or a directory that
	// cannot be read, is yielded with its path and an error, and the walk continues if the loop does. An error
	// without a path ends the walk. A tree that changes meanwhile is described as found.
	Walk(ctx context.Context, root string) iter.Seq2[WalkEntry, error]
	// FS returns a directory, by default the service's, as a read-only file system for fs.WalkDir, fs.Glob or
	// template.ParseFS. It implements fs.StatFS, fs.ReadFileFS and fs.ReadDirFS, with the limits of ReadFile and
	// List, and fs.ReadLinkFS. Links are followed inside the sandbox, also to targets outside the directory. All
	// calls end with ctx.
	FS(ctx context.Context, dir string) fs.FS

	// Mkdir creates a directory. An existing one is an ErrExists, unless opts.Parents is set.
	Mkdir(ctx context.Context, path string, opts MkdirOptions) error
	// Remove removes a file, a link or an empty directory or, with Recursive, a directory and its contents. Links
	// are removed, never followed. A missing path is an ErrNotFound, a directory that is not empty an ErrNotEmpty.
	// A failure may leave part of a tree removed.
	Remove(ctx context.Context, path string, opts RemoveOptions) error
	// Rename moves from, which may be a link, to the path to. It replaces a file there. It replaces a directory
	// only with a directory, and only if it is empty. Otherwise the error is the kernel's: ErrExists, ErrNotEmpty,
	// ErrIsDirectory or ErrNotDirectory. Between file systems it is ErrUnsupported.
	Rename(ctx context.Context, from, to string) error
	// Symlink creates path as a symbolic link to target, which need not exist. A relative target is relative to the
	// link's directory. An existing path is an ErrExists.
	Symlink(ctx context.Context, target, path string) error
	// Chmod sets the permission, set-id and sticky bits of path. It follows a link at path.
	Chmod(ctx context.Context, path string, mode fs.FileMode) error
	// Chown makes owner, which is as in Cmd.User, the owner of path. It does not follow a link at path. Without a
	// group, the group becomes the user's own, or 0 if the service does not know the user's number.
	Chown(ctx context.Context, path, owner string) error
	// ChownAll is Chown for path and everything below it. It never follows links, even if they are created
	// meanwhile. A failure may leave part of the tree changed.
	ChownAll(ctx context.Context, path, owner string) error

	// Upload extracts a tar stream into dir, an existing directory.
	Upload(ctx context.Context, dir string, tar io.Reader) error
	// Download returns path, a file or a tree, as a tar stream. Its first entry has the name of path's last
	// element. The sandbox produces the stream, so names and links in it must not be trusted. Pipes, sockets and
	// devices in the tree are left out. Unless there are none, the tree's root comes again as the last entry, with
	// the PAX record FUMEHOOD.skipped: their number and then, for each, a NUL byte, "pipe", "socket" or "device", a
	// space, and the path relative to the root. Beyond 64 KiB they are only counted. The Engine transport does not
	// list sockets. If path itself is no file, directory or link, the error is an ErrNotRegular, reported by Read at
	// the latest.
	Download(ctx context.Context, path string) (io.ReadCloser, error)
}

// Process is a command started with Start. Its end is awaited and its output collected even if no method is called.
// Its methods may be called by multiple goroutines concurrently.
type Process interface {
	// Info describes the command.
	Info() ProcessInfo
	// Wait returns how the command ended, as Exec does. ctx limits only the waiting: if it ends first, the command
	// runs on and the error is an ErrCanceled.
	Wait(ctx context.Context) (*Result, error)
	// Events yields the command's output from now on, and earlier output that is still held: at most 1 MiB, and
	// 16,384 alternating pieces of the two streams (see Event.Skipped). The last event has the Result. While a loop
	// runs, the program blocks rather than output being lost; with Cmd.Events also before the first loop. Only one
	// loop may run at a time; leaving it early leaves the command running. A detached command has no events, only
	// Follow.
	Events() iter.Seq2[Event, error]
	// Follow yields the output of stream s from a byte offset on: first what is held, then new output until the
	// command has ended. The end of the stream is held, up to the command's cap, also after the command's end.
	// Follow waits if the offset has not been reached yet. Use Wait for how the command ended.
	//
	// Any number of loops may follow at once, and none blocks the program. A loop that is too slow for the cap
	// misses output, which the offsets show. To block the program instead, use Events. When ctx ends, the loop ends
	// with an ErrCanceled; the command runs on.
	Follow(ctx context.Context, s Stream, offset int64) iter.Seq2[Chunk, error]
	// Write writes to the command's standard input. It requires Cmd.StdinPipe. After the command has ended it is an
	// ErrUnavailable.
	Write(p []byte) (int, error)
	// CloseStdin closes the command's standard input. It requires Cmd.StdinPipe.
	CloseStdin() error
	// Signal sends a signal, by its Linux number, or fails with ErrUnsupported. It does nothing if the command has
	// ended.
	Signal(ctx context.Context, sig int) error
	// Resize sets the terminal's size in characters.
	Resize(ctx context.Context, rows, cols uint16) error
	// Kill kills the command with all its descendants and waits until they have ended. The Result then reports how
	// the program ended: Signaled with the Reason "killed by the caller", unless the program exits by itself at the
	// first signal; or Lost with Leaked set if the transport cannot kill it. For a detached command in a kept sandbox
	// that is Lost because the connection broke, it is an ErrUnavailable: the command may still run, and a
	// RefreshProcesses reaches it again.
	Kill(ctx context.Context) error
	// Forget removes an ended detached command from its service's list. Until then its Result is kept, with output
	// of up to Cmd's two caps in memory. Forgetting a running command is an ErrConfig; forgetting one that is not
	// in the list does nothing.
	Forget(ctx context.Context) error
}
