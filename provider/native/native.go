// Package native is the provider that runs sandboxes on Linux without a daemon. It makes the namespaces, mounts and
// control groups itself, and starts a sandbox in some milliseconds. An OCI runtime can start it instead.
//
//	func main() {
//		native.RunReaper() // first: this process may be a reaper
//		p, err := native.New(ctx, native.Options{})
//		...
//		defer p.Close(ctx)
//		sb, err := p.Start(ctx, fumehood.Spec{Image: "python:3.12-slim"})
//		...
//	}
//
// A sandbox has its own mount, PID, IPC, UTS, network and control group namespaces, a seccomp filter, few
// capabilities, no new privileges, limits by control groups, and no network. Its root file system is an overlay of the
// image's layers and a writable layer in memory, or on disk if Limits.Disk is large.
// SECURITY.md describes what protects the host.
//
// A sandbox is a folder of mode 0700, <StateDir>/<name>, and control groups fumehood/<name>-<hash>. Both are removed by
// Close, or, if the process is killed, by its reaper or by Cleanup. Everything else belongs to the sandbox's first
// process, which ends with the process that started it.
package native

import (
	"context"
	"log/slog"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner/reaper"
	"github.com/fumehood/fumehood/provider"
)

// DefaultImage is the image of a sandbox whose spec names none.
const DefaultImage = "python:3.12-slim"

// DefaultDisk is the size of a sandbox's writable layer in bytes, if the memory limit allows it. It is in memory and
// counts against that limit, so it is at most half of it. A larger Limits.Disk is on the host's disk.
const DefaultDisk = 1 << 30

// Options configures a Provider. The zero value is valid and logs nothing.
type Options struct {
	// DefaultImage is used if a spec names no image. Empty means the constant DefaultImage.
	DefaultImage string
	// StateDir holds a folder for each existing sandbox. Empty means $XDG_STATE_HOME/fumehood/native, or
	// .local/state/fumehood/native in the user's home.
	StateDir string
	// CacheDir holds unpacked images and the guest's program. It must not be on a file system mounted noexec. Empty
	// means $XDG_CACHE_HOME/fumehood/native, or .cache/fumehood/native in the user's home.
	CacheDir string
	// Seccomp is the file of the sandboxes' seccomp profile, in the format of `docker run --security-opt seccomp=FILE`, or
	// fumehood.SeccompBrowsers.
	// Empty means Fumehood's own profile; SECURITY.md lists what it denies. "unconfined" allows every system call.
	Seccomp string
	// Runtime is an OCI runtime that starts the sandboxes: the name of a program, such as runsc for gVisor, or its
	// absolute path. It needs root. Empty means that this package starts them itself. A spec may name crun, runc or
	// runsc; that counts if the options name none, or if it is runsc.
	Runtime string
	// UserNamespace runs each sandbox in a user namespace: root in it has the rights of an unprivileged user on the host.
	// Before Linux 6.6 each has a copy of its image. It needs file systems that can map user ids below CacheDir and below the mounts of specs.
	UserNamespace bool
	// AllowUnenforcedLimits runs sandboxes even if a limit that their spec names cannot be enforced: memory and CPUs without
	// control groups, and processes too, unless the sandboxes are in user namespaces. Info and the log name the limits. If it
	// is not set, such a start returns ErrUnsupported.
	AllowUnenforcedLimits bool
	// NoReaper disables the reaper. The reaper is a second process of this program. It removes this provider's
	// folders and control groups if this process ends without doing so. A program that does not call RunReaper has no
	// reaper either. Without a reaper, the next process that starts a sandbox removes them, or Cleanup does.
	NoReaper bool
	// Builder returns what builds images: a docker.Provider, whose Engine must be on a unix socket of this machine. It is
	// called when the first Dockerfile must be built; the provider closes the result. If it is nil or fails, BuildKit
	// builds Dockerfiles, by the program buildctl. Without either, they are an ErrUnsupported.
	Builder func(ctx context.Context) (Builder, error)
	// Logger receives warnings and what weakens the isolation. Nil disables logging.
	Logger *slog.Logger
	// Progress is called for the steps of fetching or building an image. It is called concurrently and must not block. Nil disables
	// progress reports.
	Progress func(provider.Progress)
}

// RunReaper runs the reaper if this process is one, see Options.NoReaper, and returns immediately otherwise. Call it at the
// beginning of main. It is the same as docker.RunReaper: a program that imports both providers calls either.
func RunReaper() { reaper.Run() }

// Builder builds images from Dockerfiles.
type Builder interface {
	fumehood.Provider
	provider.Preparer
	provider.ImageBuilder
}
