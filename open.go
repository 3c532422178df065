package fumehood

import (
	"context"
	"time"
)

// Opener is the capability of a Provider to reach kept sandboxes (Spec.Keep) that other processes have
// started, on this machine or another one that uses the same daemon.
type Opener interface {
	// Open returns a kept sandbox. Closing it leaves it: what is to remove it is Cleaner, or its time (Spec.TTL).
	// An unknown name is an ErrConfig. One whose default service does not run is an ErrUnavailable that tells
	// how it ended. What of it is other processes' doing, see Service.RefreshProcesses.
	Open(ctx context.Context, name string) (*Sandbox, error)
	// Kept lists the kept sandboxes by name.
	Kept(ctx context.Context) ([]KeptSandbox, error)
	// Logs passes on what the main process of a kept sandbox's service has written, whether or not it still
	// runs. An empty service is the default one. Where the main process is Fumehood's own it writes nothing, and
	// the error is an ErrUnsupported.
	Logs(ctx context.Context, name, service string, opts LogOptions, out Sink) error
}

// KeptSandbox describes a kept sandbox.
type KeptSandbox struct {
	Info
	Created time.Time
	Expires time.Time         // from then on a clean-up removes it; zero where it stays until it is named
	States  map[string]string // by service, as a person reads it: "running", "exited (3)", "running (unhealthy)"
}

// LogOptions say which part of a log is wanted.
type LogOptions struct {
	Tail   int  // how many of its last lines; 0 for all
	Follow bool // go on with what comes until the main process ends
}
