package provider

import (
	"context"
	"time"

	"github.com/fumehood/fumehood"
)

// Opener is the capability of a Provider to reach kept sandboxes (Spec.Keep) that other processes have
// started, on this machine or another one that uses the same daemon.
type Opener interface {
	// Open returns a kept sandbox. Closing it leaves it: what is to remove it is Cleaner, or its time (Spec.TTL).
	// An unknown name is an ErrConfig. One whose default service does not run is an ErrUnavailable that tells
	// how it ended. What of it is other processes' doing, see Service.RefreshProcesses.
	Open(ctx context.Context, name string) (fumehood.Sandbox, error)
	// Kept lists the kept sandboxes by name.
	Kept(ctx context.Context) ([]KeptSandbox, error)
	// Logs passes on what the main process of a kept sandbox's service has written, whether or not it still
	// runs. An empty service is the default one. Where the main process is Fumehood's own it writes nothing, and
	// the error is an ErrUnsupported.
	Logs(ctx context.Context, name, service string, opts LogOptions, out Sink) error
}

// KeptSandbox describes a kept sandbox.
type KeptSandbox struct {
	fumehood.Info
	Created time.Time
	Expires time.Time         // from then on a clean-up removes it; zero where it stays until it is named
	States  map[string]string // by service, as a person reads it: "running", "exited (3)", "running (unhealthy)"
}

// LogOptions say which part of a log is wanted.
type LogOptions struct {
	Tail   int  // how many of its last lines; 0 for all
	Follow bool // go on with what comes until the main process ends
}

// Cleaner is the capability of a Provider to find and remove what processes left that have ended.
type Cleaner interface {
	// Cleanup removes what dead owners left, and what opts names. It never touches what a living
	// process holds. An owner that cannot be judged from here is taken to live until its lease is over, where it has one.
	// It returns all objects of Fumehood's, removed or not, in the order of removal, and an error where something that
	// should go could not be removed.
	Cleanup(ctx context.Context, opts CleanupOptions) ([]Leftover, error)
}

// CleanupOptions says what Cleanup removes. The zero value removes what dead owners left.
type CleanupOptions struct {
	// Names are the sandboxes to remove, in place of what dead owners left; kept ones and those whose
	// owner cannot be judged from here may be among them. A name that a living process holds, or that no sandbox has, is
	// an ErrConfig, and nothing is removed.
	Names []string
	// Caches removes what Fumehood made for later use: guest volumes, images.
	Caches bool
	// Foreign are patterns, as path.Match has them, of the names of foreign objects to remove: those whose labels name
	// Fumehood, and that no seal of this user's proves to be its own. A pattern that matches none is an ErrConfig, and
	// nothing is removed.
	Foreign []string
	// DryRun removes nothing and only tells what would be.
	DryRun bool
}

// Leftover is one object that Cleanup looked at.
type Leftover struct {
	Kind    string // "container", "network", "volume", "image", "folder"
	Name    string // the object's own name
	Sandbox string // the sandbox that it belongs to; empty for a cache
	Owner   string // "alive", "dead" or "unknown", as judged from here
	Kept    bool
	Cache   bool
	Foreign bool   // its labels name Fumehood, and no seal of this user's proves that: it stays unless Foreign names it
	Remove  bool   // it is to be removed
	Reason  string // why, or why not
	Removed bool   // it has been removed
	Err     error  // why it could not be removed
}

// Preparer is the capability of a Provider to get what sandboxes are made of before the first of them is started.
type Preparer interface {
	// ImageKey returns a key of the images that a sandbox of the spec needs: specs with the same key need the same ones.
	// It reads the files that the spec names, whose faults are an ErrConfig, and asks no daemon.
	ImageKey(ctx context.Context, spec fumehood.Spec) (key string, err error)
	// Prepare checks that a sandbox of the spec can be made, and pulls and builds the images that are missing. It
	// starts nothing. An image that was built for one project stays, for it is found by its content. What it returns is
	// for Spec.Images of sandboxes that are to run just these images.
	Prepare(ctx context.Context, spec fumehood.Spec, opts PrepareOptions) (images map[string]string, err error)
}

// PrepareOptions say how images are prepared. The zero value is right for a sandbox by itself.
type PrepareOptions struct {
	// Exclude are files and folders of this machine that no build gets, although its context has them: absolute paths,
	// symbolic links resolved. A context that lies in one of them is an ErrConfig.
	Exclude []string
}

// Measurer is the capability of a Provider to say how large the machine is that sandboxes run on, which need not be
// this one.
type Measurer interface {
	Machine(ctx context.Context) (Machine, error)
}

// Machine is what sandboxes share.
type Machine struct {
	CPUs   int
	Memory int64 // bytes
}
