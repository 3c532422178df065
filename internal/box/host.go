package box

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood/provider"
)

// Host gives access to a service. Providers implement it.
type GuestHost interface {
	// Attach connects to the main process, which is not started yet.
	Attach(ctx context.Context) (Conn, error)
	// Exec starts a guest as a user. The user has the form that the provider resolves: "name" or "id", optionally with
	// ":group".
	Exec(ctx context.Context, user string) (Exec, error)
	// State returns what has happened to the service. It waits up to within until the state satisfies the condition; a
	// nil condition does not wait. It works even if ctx is canceled.
	State(ctx context.Context, within time.Duration, satisfies func(GuestState) bool) GuestState
	// Death returns why the service is unavailable; zero if it is alive or the reason is unknown.
	Death(ctx context.Context) Death
}

// Relayer is a Host that reaches resident guests also without a folder for sockets.
type Relayer interface {
	// Relay connects to the abstract unix socket with the given name, through a program run by the service's own user.
	Relay(ctx context.Context, name string) (Exec, error)
}

// Counter is a Host that counts the processes of the service without a guest.
type Counter interface {
	// Processes returns the number of processes and threads, and their limit; 0 if there is none.
	Processes(ctx context.Context) (n, limit uint64, err error)
}

// Empowerer is a Host whose Exec may start root without capabilities if the service's user is not root.
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

// Exec is a guest that the Host has started.
type Exec interface {
	Conn
	// Wait waits for the guest's exit and returns it.
	Wait(ctx context.Context) (provider.Exit, error)
	// Ended waits at most within for the guest's exit, and returns the exit code: -1 if the guest is still running.
	Ended(ctx context.Context, within time.Duration) (int, error)
	// Stopped reports whether the guest is stopped, for example by SIGSTOP.
	Stopped(ctx context.Context) (bool, error)
}

// GuestState is the state of a service.
type GuestState struct {
	Died   bool // and was not restarted
	Over   bool // has died, or is not known to have been started
	Paused bool // all processes are suspended until it resumes
	OOMs   int  // number of out-of-memory kills
	Ends   int  // how often its own program has exited by itself
}

// Death describes the end of a service.
type Death struct {
	Err         error // an ErrUnavailable; ErrBroken if code in the service caused it
	OutOfMemory bool  // the out-of-memory killer killed it
}

// GuestConfig configures a Guests.
type GuestConfig struct {
	Host GuestHost
	// Sandbox is the name of the service's sandbox, for messages.
	Sandbox string
	// User is the service's own user; empty means root.
	User string
	// Serves reports whether the main process is a guest.
	Serves bool
	// Key is the secret of resident guests, which outlive this process; nil if there are none. ID identifies the
	// service among all services.
	Key []byte
	ID  string
	// Within bounds the start of a guest. Look adds diagnostics of the service to the error of a guest that does not
	// answer. Trusted returns an error if code in the service may have replaced a guest that was started and answers.
	Within  time.Duration
	Look    func(ctx context.Context, err error) error
	Trusted func(ctx context.Context) error
	// Sockets returns the folder on this machine for the service's sockets, which guests see as SocketDir; empty if
	// guests do not use sockets. NoSockets is called with the reason if they cannot use them.
	Sockets   func() string
	SocketDir string
	NoSockets func(error)
	// CountsOOMs reports whether only the Host counts out-of-memory kills: guests have no control group.
	CountsOOMs bool
	// Ran is set before a command runs in the sandbox.
	Ran *atomic.Bool
	Log *slog.Logger
}
