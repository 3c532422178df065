package provider

import (
	"context"
	"time"

	"github.com/fumehood/fumehood"
)

// Opener is an optional interface of a Provider. It reopens kept sandboxes (Spec.Keep) of other processes, on this
// machine or on another one that uses the same daemon.
type Opener interface {
	// Open returns a kept sandbox. Closing it leaves the sandbox in place: a Cleaner removes it, or a cleanup after
	// its Spec.TTL. An unknown name is an ErrConfig. If the default service does not run, the error is an
	// ErrUnavailable that reports how it ended. For commands of other processes, see Service.RefreshProcesses.
	Open(ctx context.Context, name string) (fumehood.Sandbox, error)
	// Kept lists the kept sandboxes by name: all, or those of the given names that exist.
	Kept(ctx context.Context, names ...string) ([]KeptSandbox, error)
	// Logs sends the output of the main process of a kept sandbox's service to out, whether or not it still runs. The
	// beginning of a long output may not be kept.
	// An empty service means the default one. If the main process is Fumehood's own, it writes nothing, and the
	// error is an ErrUnsupported.
	Logs(ctx context.Context, name, service string, opts LogOptions, out Sink) error
	// Renew sets the expiry of a kept sandbox to ttl from now, and returns the expiry. It never makes it earlier: a
	// sandbox without an expiry, whose time is zero, still has none. An unknown name is an ErrConfig.
	Renew(ctx context.Context, name string, ttl time.Duration) (time.Time, error)
}

// KeptSandbox describes a kept sandbox.
type KeptSandbox struct {
	fumehood.Info
	Created time.Time
	Expires time.Time         // a cleanup after this time removes it; zero if it stays until named
	States  map[string]string // by service, for display: "running", "exited (3)", "running (unhealthy)"
}

// LogOptions selects the part of a log to return.
type LogOptions struct {
	Tail   int  // number of last lines, perhaps of each stream; 0 means all
	Follow bool // continue with new output until the main process ends
}

// Cleaner is an optional interface of a Provider. It finds and removes objects that ended processes left behind.
type Cleaner interface {
	// Cleanup removes objects of dead owners, and objects named in opts. It never removes objects held by a living
	// process. An owner that cannot be checked from here counts as alive until its lease expires, if it has one.
	// Cleanup returns all objects of Fumehood's, removed or not, in order of removal. It returns an error if an
	// object could not be removed.
	Cleanup(ctx context.Context, opts CleanupOptions) ([]Leftover, error)
}

// CleanupOptions selects what Cleanup removes. The zero value removes objects of dead owners.
type CleanupOptions struct {
	// Names are the sandboxes to remove, instead of objects of dead owners. They may include kept sandboxes and
	// sandboxes whose owner cannot be checked from here. An unknown name, or one held by a living process, is an
	// ErrConfig, and nothing is removed.
	Names []string
	// Caches removes what Fumehood stores for reuse: guest volumes, images.
	Caches bool
	// Foreign are patterns, as for path.Match, of the names of foreign objects to remove. An object is foreign if
	// its labels name Fumehood but no seal of this user authenticates them. A pattern without a match is an
	// ErrConfig, and nothing is removed.
	Foreign []string
	// DryRun removes nothing and only reports what would be removed.
	DryRun bool
}

// Leftover is one object that Cleanup examined.
type Leftover struct {
	Kind    string // "container", "network", "volume", "image", "folder"
	Name    string // the object's own name
	Sandbox string // its sandbox; empty for a cache
	Owner   string // "alive", "dead" or "unknown", as checked from here
	Kept    bool
	Cache   bool
	Foreign bool   // labels name Fumehood without a seal of this user: kept unless Foreign names it
	Remove  bool   // it should be removed
	Reason  string // why it should be removed, or kept
	Removed bool   // it has been removed
	Err     error  // why it could not be removed
}

// Preparer is an optional interface of a Provider that prepares the images of sandboxes before the first one
// starts.
type Preparer interface {
	// ImageKey returns a key of the images that a sandbox of the spec needs. Specs with equal keys need the same
	// images. It reads the files that the spec names and does not contact the daemon. Errors in those files are an
	// ErrConfig.
	ImageKey(ctx context.Context, spec fumehood.Spec) (key string, err error)
	// Prepare checks that a sandbox of the spec can be created, and pulls or builds missing images. It starts
	// nothing. An image built for one project remains and is found by its content. The result is for Spec.Images of
	// sandboxes that must run exactly these images.
	Prepare(ctx context.Context, spec fumehood.Spec, opts PrepareOptions) (images map[string]string, err error)
}

// PrepareOptions are the options of Prepare. The zero value is right for a single sandbox.
type PrepareOptions struct {
	// Exclude lists files and folders of this machine that are left out of every build context. Paths are absolute,
	// with symbolic links resolved. A context inside one of them is an ErrConfig.
	Exclude []string
	// BuildOnly prepares only images that are built, for a provider that has the others. They may be of services that
	// name the image of another one.
	BuildOnly bool
}

// Measurer is an optional interface of a Provider that reports the size of the machine on which sandboxes run. That
// may be another machine than this one.
type Measurer interface {
	Machine(ctx context.Context) (Machine, error)
}

// Machine describes the resources that sandboxes share.
type Machine struct {
	CPUs            int
	Memory          int64 // bytes
	MemoryAvailable int64 // bytes that can be allocated now, at least 1; 0 if unknown
}
