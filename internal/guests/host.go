// Package guests manages the guests in a service of a sandbox: the main process, where that is one, and one more for each
// other user. It starts them, replaces those that die, finds those that outlive this process, and tells by evidence
// whether what runs in the sandbox is the reason that one is lost. How processes of the service are reached is its Host's.
package guests

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood/provider"
)

// Host is a service as its provider reaches it.
type Host interface {
	// Attach connects to the main process, which is not started yet.
	Attach(ctx context.Context) (Conn, error)
	// Exec starts a guest, as a user as the provider looks them up: "name" or "id", perhaps with ":group".
	Exec(ctx context.Context, user string) (Exec, error)
	// Relay connects to the abstract unix socket of a name, by a program of the service's own user.
	Relay(ctx context.Context, name string) (Exec, error)
	// State is what has happened to the service. It waits for the given time until that satisfies; nil waits for nothing. It
	// outlives the cancellation of ctx.
	State(ctx context.Context, within time.Duration, satisfies func(State) bool) State
	// Death is why nothing can be done in the service any more; zero where it lives, or nobody can tell.
	Death(ctx context.Context) Death
}

// Empowerer is a Host whose Exec may give root no capabilities in a service of another user.
type Empowerer interface {
	// ExecEmpowered is Exec with all capabilities, of which the guest keeps those of the service before it does anything else.
	ExecEmpowered(ctx context.Context, user string) (Exec, error)
	// Powerless is the error of a user who is root without capabilities; nil where err is one of such a guest's start, and has
	// another reason.
	Powerless(err error) error
}

// Conn is a connection to a guest's standard input and output.
type Conn interface {
	io.ReadWriteCloser
	// Complaint is the end of what the guest wrote to standard error. That of an Exec waits for its end, which Close brings about.
	Complaint() string
}

// Exec is a guest that the Host has started.
type Exec interface {
	Conn
	// Wait returns how it ended.
	Wait(ctx context.Context) (provider.Exit, error)
	// Ended waits for its end, for so long at most, and returns its exit code: -1 where it runs on.
	Ended(ctx context.Context, within time.Duration) (int, error)
	// Stopped reports whether it is stopped, as by SIGSTOP.
	Stopped(ctx context.Context) (bool, error)
}

// State is what has happened to a service.
type State struct {
	Died   bool // and was not started again
	Over   bool // it has died, or is not known to have been started
	Paused bool // nothing in it runs until it goes on
	OOMs   int  // how often the out-of-memory killer has struck
	Ends   int  // how often its own program has ended by itself
}

// Death is the end of a service.
type Death struct {
	Err         error // an ErrUnavailable; an ErrBroken where what ran in it is the reason
	OutOfMemory bool  // the out-of-memory killer has ended it
}

// Config is what a Manager works with.
type Config struct {
	Host Host
	// Sandbox is the name of the service's sandbox, for people.
	Sandbox string
	// User is the service's own; empty is root's.
	User string
	// Serves says that the main process is a guest.
	Serves bool
	// Key is the secret of resident guests, which outlive this process; nil where there are none. ID is the service's own
	// among all.
	Key []byte
	ID  string
	// Within bounds the start of a guest. Look adds to the error of one that does not answer what is seen of the service. Trusted
	// is the error of a guest that was started, and answers, but which what runs in the service may have replaced.
	Within  time.Duration
	Look    func(ctx context.Context, err error) error
	Trusted func(ctx context.Context) error
	// Sockets is the folder of this machine for the service's sockets, which its guests see as SocketDir; empty where they use
	// none. NoSockets is told that they cannot.
	Sockets   func() string
	SocketDir string
	NoSockets func(error)
	// Ran is set when a command is about to run in the sandbox.
	Ran *atomic.Bool
	Log *slog.Logger
}
