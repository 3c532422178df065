package box

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood/provider"
)

// Unit is a container of a service, or what takes its place. Drivers implement it. Its methods may be called by multiple
// goroutines concurrently.
//
// A unit needs a PID namespace of its own with a /proc, whose first process is the main process. For a guest, the children
// of process 1 may be what a dead guest left, and it kills them. A resident accepts only connections of processes that come
// from outside, whose parent it cannot see.
type Unit interface {
	// Attach connects to the main process. It is called once, by the process that starts the unit, before anything else
	// uses the main process. That runs already, or is started next.
	Attach(ctx context.Context) (Conn, error)
	// Exec starts a guest as a user: the guest's program with the argument "serve", or as its package says. The user has
	// the form that the provider resolves: "name" or "id", optionally with ":group". An unknown one is an
	// ErrUserNotFound. ctx limits the start only.
	Exec(ctx context.Context, user string) (Exec, error)

	// State returns what has happened to the unit so far.
	State() State
	// Until waits until the state is as wanted, and returns it. It returns false if ctx ends first.
	Until(ctx context.Context, wanted func(State) bool) (State, bool)
	// Death returns why the unit is unavailable; zero if it is alive or the reason is unknown. It works even if ctx is
	// canceled.
	Death(ctx context.Context) Death

	// A unit whose main process is always the guest has no check, never restarts, and has no evidence.

	// Check describes the health check; nil without one.
	Check() *Check
	// Restarts reports whether the unit's own program is started again after its end, or was.
	Restarts(ctx context.Context) bool
	// Evidence returns the output of the last health check and the last lines of the log. Both may be empty.
	Evidence(ctx context.Context, lines int) (check, log string)

	// Addresses returns the addresses of the unit's networks, at which its programs may listen. Loopback addresses are not
	// necessary.
	Addresses(ctx context.Context) ([]netip.Addr, error)
	// Stop kills all programs of a kept sandbox for good.
	Stop(ctx context.Context) error
	// Pause suspends all processes. On an error they may be suspended too, if paused is true.
	Pause(ctx context.Context) (paused bool, err error)
	// Resume ends what Pause has begun.
	Resume(ctx context.Context) error
}

// Relayer is a Unit that reaches resident guests also without a folder for sockets.
type Relayer interface {
	// Relay connects to the abstract unix socket with the given name, through a program run by the service's own user: the
	// guest's, with the arguments "relay" and the name.
	Relay(ctx context.Context, name string) (Exec, error)
}

// Counter is a Unit that counts its processes without a guest.
type Counter interface {
	// Processes returns the number of processes and threads, and their limit; 0 if there is none.
	Processes(ctx context.Context) (n, limit uint64, err error)
}

// Empowerer is a Unit whose Exec may start root without capabilities if the service's user is not root.
type Empowerer interface {
	// ExecEmpowered is Exec with all capabilities. The guest first drops those that the service does not have.
	ExecEmpowered(ctx context.Context, user string) (Exec, error)
	// Powerless returns the error for a user who is root without capabilities. It returns nil if err is from starting
	// such a guest and has another cause.
	Powerless(err error) error
}

// Conn is a connection to a guest's standard input and output.
type Conn interface {
	io.ReadWriteCloser
	// Complaint returns the end of what the guest wrote to standard error. For an Exec it waits until the guest exits,
	// which Close causes.
	Complaint() string
}

// Exec is a guest that a Unit has started.
type Exec interface {
	Conn
	// Wait waits for the guest's exit and returns it.
	Wait(ctx context.Context) (provider.Exit, error)
	// AwaitEnd waits at most within for the guest's exit, and returns the exit code: -1 if the guest is still running.
	AwaitEnd(ctx context.Context, within time.Duration) (int, error)
	// Stopped reports whether the guest is stopped, for example by SIGSTOP.
	Stopped(ctx context.Context) (bool, error)
}

// State is the state of a unit.
type State struct {
	Lives  bool // it runs; false also if it is not known to have been started
	Paused bool // all processes are suspended until it resumes
	OOMs   int  // the number of out-of-memory kills
	Before int  // OOMs when it was last started

	Died   bool // its own program, or all of it, has ended and was not started again
	Deaths int  // the number of such ends; one may count twice if the connection to the daemon broke
	Exit   int  // the last exit code, if there was one
	// Alone reports whether the last end was by itself: without a signal or stop through the Engine. Ends counts such
	// ends. Signaled reports whether it was signaled or stopped through the Engine since its start.
	Alone    bool
	Ends     int
	Signaled bool

	Health string // Healthy, Unhealthy, or empty as long as there is no result since the last start
}

// Results of health checks.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// await waits until the state of a unit is as wanted, but at most for the given time, even if ctx is canceled.
func await(ctx context.Context, u Unit, within time.Duration, wanted func(State) bool) State {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	s, _ := u.Until(ctx, wanted)
	return s
}

// Death describes the end of a service.
type Death struct {
	Err         error // an ErrUnavailable; ErrBroken if code in the service caused it
	OutOfMemory bool  // the out-of-memory killer killed it
}

// GuestConfig configures a Guests. Unit, Within and Ran are required.
type GuestConfig struct {
	Unit Unit // in which the guests are
	// Sandbox is the name of the service's sandbox, for messages.
	Sandbox string
	// User is the service's own user; empty means root.
	User string
	// Serves reports whether the main process is a guest.
	Serves bool
	// Key is the secret of resident guests, which outlive this process; nil if there are none. ID identifies the
	// service among all services. Each process that opens the sandbox must give the same ones.
	Key []byte
	ID  string
	// Within bounds the start of a guest. Look adds diagnostics of the service to the error of a guest that does not
	// answer. Trusted returns an error if code in the service may have replaced a guest that was started and answers.
	// Both may be nil.
	Within  time.Duration
	Look    func(ctx context.Context, err error) error
	Trusted func(ctx context.Context) error
	// Sockets returns the folder on this machine for the service's sockets, which guests see as SocketDir; empty if
	// guests do not use sockets. NoSockets is called with the reason if they cannot use them. Without sockets, Sockets is
	// nil, and the Unit of a kept sandbox must be a Relayer.
	Sockets   func() string
	SocketDir string
	NoSockets func(error)
	// CountsOOMs reports whether only the Unit counts out-of-memory kills: guests have no control group.
	CountsOOMs bool
	// Ran is set before a command runs in the sandbox.
	Ran *atomic.Bool
	Log *slog.Logger // nil disables logging
}
