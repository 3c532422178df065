package fumehood

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"log/slog"
)

// Provider makes sandboxes. Its methods may be called by many goroutines at once. What else a provider can do is in package
// provider, and in the provider's own.
type Provider interface {
	// Name is the provider's name as the command line knows it: "docker", "local".
	Name() string
	// Start makes a sandbox and returns when commands can be run in it; ctx bounds the start only. It is all or nothing: on
	// an error, whatever had been made is removed again. A field of spec that the provider cannot
	// honour is an ErrUnsupported, a wrong one an ErrConfig.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
	// Close removes every sandbox that this provider still holds, except kept ones. It outlives the
	// cancellation of ctx and may be called twice.
	Close(ctx context.Context) error
}

// Sandbox is a started environment. It is its default service too. Its methods may be called by many goroutines at once.
type Sandbox interface {
	Service

	// Info describes the sandbox.
	Info() Info
	// Lookup returns the service of that name, or an ErrConfig that lists the names there are.
	Lookup(name string) (Service, error)
	// Close ends everything that runs in the sandbox and removes it. It outlives the cancellation of ctx,
	// has a deadline of its own, and may be called again: after a success that does nothing, after an error
	// it tries once more. Calls made after Close fail with ErrUnavailable.
	Close(ctx context.Context) error
	// Stop ends everything that runs in a kept sandbox (Spec.Keep), which stays as it is otherwise, for a person
	// to look into. Calls made after Stop, but for Close, fail with ErrUnavailable. A sandbox that is not kept
	// is an ErrConfig, a provider that cannot do it an ErrUnsupported.
	Stop(ctx context.Context) error
	// Freeze stops all that runs in the sandbox where it is, in every service, until thaw is called. Meanwhile nothing in it
	// answers, and the wall limits of its commands go on. Thaw outlives the cancellation of its context; it is needed where
	// Freeze has no error. What cannot be frozen, by the provider or by a daemon without control groups, is an ErrUnsupported.
	Freeze(ctx context.Context) (thaw func(context.Context) error, err error)
	// Check reports whether a sandbox that was not used yet still is as it was started: its default service answers, and
	// where its provider can tell, nothing has ended that ran then. What has is the error.
	Check(ctx context.Context) error
	// Assign gives other labels to a sandbox that was started before it was known what it is for. Info and the lines of its
	// journal have them from now on; what was made for it in an Engine doesn't. It is called before the sandbox is used. The
	// labels are as Spec.Labels: else it is an ErrConfig.
	Assign(labels map[string]string) error
	// Record has all that is done in the sandbox from now on recorded in a journal, which is for one that was reached again.
	// One that was started has the journal of its spec. Package journal makes journals.
	Record(to *slog.Logger)
	// Phase marks the beginning of a phase of the sandbox's use in its journal; end is called at its end.
	Phase(name string) (end func(error))
}

// Service is one service of a sandbox: commands run and files live in it.
type Service interface {
	Files

	// ServiceInfo describes the service; its User is the one that As named, if any.
	ServiceInfo() ServiceInfo
	// As returns the same service as another of its users has it: commands whose User is empty run as that
	// user, and files are read and changed with that user's rights. user is as in Cmd.User; empty means the
	// service's own. Whether there is such a user shows with the first use, as an ErrUserNotFound.
	As(user string) Service
	// ViaEngine returns the same service as it is reached without the help of anything in the sandbox: every command is as
	// with Cmd.ViaEngine, and files are read and written by the Engine's archive calls under docker, with what these cannot do
	// (docs/promises.md). It is for what must not trust the code under test. The other providers have no helper in the
	// sandbox for files, and read them as ever.
	ViaEngine() Service

	// Exec runs cmd to its end. The error says that we failed, or that the program could not be started
	// (ErrNotStarted); how a program that ran has ended is in the Result, whatever its exit code. When ctx
	// ends first the command is killed and the error is an ErrCancelled.
	Exec(ctx context.Context, cmd Cmd) (*Result, error)
	// Start hands cmd over and returns while it runs. When ctx ends, the command is killed, unless it is
	// detached.
	Start(ctx context.Context, cmd Cmd) (Process, error)
	// Stream runs cmd and yields what it writes as it comes, every byte of it, and at last its Result.
	// The program is held back while the loop's body is busy. Leaving the loop early kills the command.
	Stream(ctx context.Context, cmd Cmd) iter.Seq2[Event, error]

	// Processes lists the service's detached commands, those that run and those that have ended, until they
	// are forgotten, in the order in which they were started. The list stays when the sandbox is closed. What
	// other processes have started in a kept sandbox is listed after a RefreshProcesses.
	Processes() []Process
	// Process returns the detached command of that number, or an ErrConfig where the list has none.
	Process(id int) (Process, error)
	// RefreshProcesses looks up which detached commands a kept sandbox has, so that Processes lists those too that other
	// processes have started, and no more those that others have forgotten. They can be followed, awaited, written
	// to, signaled, killed and forgotten as this process's own; what is held of their output is in the sandbox, and
	// their Results keep at most DefaultOutputCap of it. A sandbox that is not kept, or a provider without this, is
	// an ErrUnsupported.
	RefreshProcesses(ctx context.Context) error

	// Connection says how a person gets into the service, or ErrUnsupported. The shell is that of the user whom As named.
	Connection(ctx context.Context) (Connection, error)
	// Forward listens at a port of this machine, until the sandbox is closed, and has the sandbox pass what comes there on to
	// the service's port p.Container, from inside: no network of the sandbox is needed. p.Host 0 means any port that is free,
	// and an empty p.Address 127.0.0.1. What it returns says where it listens; Connection tells it too. An address that
	// is taken is ErrConfig. Where there is nothing to pass it on by (the local provider, the Engine's transport), it is
	// ErrUnsupported.
	Forward(ctx context.Context, p Port) (Port, error)
}

// Files are the files of a service. A relative path is below the service's directory; no path is cleaned: "a/.." may well
// differ from "." where a is a link.
type Files interface {
	// ReadFile returns a regular file's content. Links are followed inside the sandbox only. A file over
	// the limit is an ErrTooLarge.
	ReadFile(ctx context.Context, path string, opts ReadOptions) ([]byte, error)
	// ReadRange returns length bytes of a regular file from offset on: fewer where the file ends before, none
	// where it ends before offset. A length over MaxReadFile is an ErrTooLarge. Links are followed as by
	// ReadFile.
	ReadRange(ctx context.Context, path string, offset, length int64) ([]byte, error)
	// Open returns a regular file's content as a stream, which is to be closed, and the file's description as
	// it was when it was opened. Links are followed as by ReadFile. A read after the end of ctx fails.
	Open(ctx context.Context, path string) (io.ReadCloser, FileInfo, error)
	// WriteFile makes or replaces a regular file, and the directories above it that are missing.
	WriteFile(ctx context.Context, path string, data []byte, opts WriteOptions) error
	// WriteFrom is WriteFile with exactly size bytes from a reader. A reader that has fewer is an ErrConfig, and so is a
	// negative size.
	WriteFrom(ctx context.Context, path string, r io.Reader, size int64, opts WriteOptions) error
	// Stat describes path. Where path is a link, it describes the link.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// List describes what is in a directory, or in the one that a link points to, sorted by name. Links in it
	// are described as such. A list over MaxReadFile bytes, about a million names, is an ErrTooLarge.
	List(ctx context.Context, dir string) ([]FileInfo, error)
	// Walk describes root and all that is below it: a directory comes before what is in it, which comes by
	// name. Links are described, never followed, root included. What cannot be described, and a directory that
	// cannot be read, come with their path and an error, and the walk goes on if the loop does. After an error
	// without a path there is nothing more. A tree that changes meanwhile is described as it was met.
	Walk(ctx context.Context, root string) iter.Seq2[WalkEntry, error]
	// FS returns what is in a directory, by default the service's, as a file system that can only be read, for what takes one: fs.WalkDir, fs.Glob,
	// template.ParseFS. It is an fs.StatFS, an fs.ReadFileFS and an fs.ReadDirFS (with the limits of ReadFile and List) and an
	// fs.ReadLinkFS as well. Links are followed inside the sandbox, also out of the directory. All calls end with ctx.
	FS(ctx context.Context, dir string) fs.FS

	// Mkdir makes a directory. One that is there is an ErrExists, unless opts says Parents.
	Mkdir(ctx context.Context, path string, opts MkdirOptions) error
	// Remove removes a file, a link or an empty directory; with Recursive, a directory with all that is in it.
	// Links are removed, never followed. What is not there is an ErrNotFound, a directory that is not empty an
	// ErrNotEmpty. When it fails half way, a part is gone.
	Remove(ctx context.Context, path string, opts RemoveOptions) error
	// Rename gives what is at from, a link included, the path to. It replaces a file there, and a directory
	// only by a directory, where it is empty; else the error is an ErrExists, an ErrNotEmpty, an
	// ErrIsDirectory or an ErrNotDirectory, as the kernel says. Between file systems it is ErrUnsupported.
	Rename(ctx context.Context, from, to string) error
	// Symlink makes path a link that says target, which need not exist. A relative target is relative to the
	// link's directory. What is at path already is an ErrExists.
	Symlink(ctx context.Context, target, path string) error
	// Chmod sets the permission, set-id and sticky bits of path, or of what it points to where it is a link.
	Chmod(ctx context.Context, path string, mode fs.FileMode) error
	// Chown gives path, or the link itself where it is one, to owner, which is as in Cmd.User. Without a group
	// it becomes the user's own, or 0 where the service does not know the user's number.
	Chown(ctx context.Context, path, owner string) error
	// ChownAll is Chown of path and of all that is below it. No link is followed, whoever puts some there meanwhile. When it
	// fails half way, a part is the owner's.
	ChownAll(ctx context.Context, path, owner string) error

	// Upload extracts a tar stream into dir, a directory that exists.
	Upload(ctx context.Context, dir string, tar io.Reader) error
	// Download returns path, a file or a tree, as a tar stream whose first entry is named like path's last
	// element. The stream is the sandbox's word: names and links in it are not to be trusted. A pipe, a socket or
	// a device in the tree is an ErrNotRegular, of Read at the latest; by the Engine's exec it is in the stream as
	// what it is, but for sockets, which the Engine leaves out.
	Download(ctx context.Context, path string) (io.ReadCloser, error)
}

// Process is a command that Start handed over. Its end is awaited and its output collected whether or
// not anybody asks. Its methods may be called by many goroutines at once.
type Process interface {
	// Info describes the command.
	Info() ProcessInfo
	// Wait returns how the command ended, as Exec does. ctx limits the waiting only: when it ends first,
	// the command runs on and the error is an ErrCancelled.
	Wait(ctx context.Context) (*Result, error)
	// Events yields what the command writes from now on, and what of before is still held (at most 1 MiB, and
	// 16,384 pieces of the two streams by turns, see Event.Skipped); the last event carries the Result. While a
	// loop runs, the program is held back rather than output lost. One loop at a time; leaving it early leaves
	// the command running. A detached command has no events, only Follow.
	Events() iter.Seq2[Event, error]
	// Follow yields what the command writes to the stream s, from an offset in bytes on: what is held of it,
	// and then what comes, until the command has ended and all is told. Held is the end of the stream, as
	// much as Cmd's cap of it; it is held after the end too. An offset that is not reached yet is waited
	// for. How the command ended is Wait's to say.
	//
	// Any number of loops may follow at once, and none holds the program back: one that is too slow for the
	// cap sees by the offsets what it has missed. The other way to listen is Events. The end of ctx ends
	// the loop with an ErrCancelled; the command runs on.
	Follow(ctx context.Context, s Stream, offset int64) iter.Seq2[Chunk, error]
	// Write writes to the command's standard input. It needs Cmd.StdinPipe. Of a command that has ended it is an
	// ErrUnavailable.
	Write(p []byte) (int, error)
	// CloseStdin ends the command's standard input. It needs Cmd.StdinPipe.
	CloseStdin() error
	// Signal sends a signal, by its Linux number, or fails with ErrUnsupported. Signalling a command that
	// has ended does nothing.
	Signal(ctx context.Context, sig int) error
	// Resize sets the terminal's size in characters.
	Resize(ctx context.Context, rows, cols uint16) error
	// Kill ends the command with all its descendants and waits for that. The Result then says how the
	// program ended, which after a kill is Signaled, or Lost with Leaked where the transport cannot end it.
	// Of a detached command in a kept sandbox that is Lost because the connection broke it is an ErrUnavailable:
	// it may run on, and is reached again by a RefreshProcesses.
	Kill(ctx context.Context) error
	// Forget takes a detached command that has ended off its service's list. What is kept of it until then
	// is its Result, whose output takes as much memory as there was, and at most Cmd's two caps. Forgetting
	// a command that runs is an ErrConfig; forgetting one that is not on the list does nothing.
	Forget(ctx context.Context) error
}
