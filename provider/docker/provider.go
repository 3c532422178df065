// Package docker is the provider that runs sandboxes as Compose projects on a Docker Engine, version 20.10 or newer. It
// uses the Compose SDK in process, and needs no docker binary.
//
//	func main() {
//		docker.RunReaper() // first: this process may be a reaper
//		p, err := docker.New(ctx, docker.Options{})
//		...
//		defer p.Close(ctx) // also if all sandboxes are closed: it ends the reaper and the connections
//		sb, err := p.Start(ctx, fumehood.Spec{Image: "python:3.12-slim"}) // pulls a missing image
//		...
//	}
package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/internal/seccomp"
	"github.com/fumehood/fumehood/provider"
)

// DefaultImage is the image of a sandbox whose spec names none.
const DefaultImage = "python:3.12-slim"

// DefaultLease is how long cleanup leaves a sandbox alone if nothing shows whether its owner lives.
const DefaultLease = 7 * 24 * time.Hour

// Options configures a provider. The zero value finds the daemon as the docker CLI does and logs nothing.
type Options struct {
	// Host is the daemon's address in the format of DOCKER_HOST, Context the name of a docker context. At most one may
	// be set. If both are empty, the provider tries DOCKER_HOST, the current context, the socket of the rootless
	// daemon, and the default socket, in this order.
	Host, Context string
	// Transport is how commands reach a sandbox. Empty means TransportGuest.
	Transport Transport
	// DefaultImage is used if a spec names no image. Empty means the constant DefaultImage.
	DefaultImage string
	// StrictPrereqs makes an Engine older than 28.0 an error. Otherwise it causes a warning, once a day.
	StrictPrereqs bool
	// NoSockets reaches guests only through the daemon, and mounts no sockets of the host. It is slower.
	NoSockets bool
	// StateDir holds a folder for each existing sandbox, with its project as a Compose file and its sockets: see
	// docs/design/sandbox.md. Empty means $XDG_STATE_HOME/fumehood/docker, or .local/state/fumehood/docker in the
	// user's home.
	StateDir string
	// ClassicBuilder builds users' Dockerfiles with the Engine's classic builder, even if it has BuildKit.
	ClassicBuilder bool
	// MaxStarting is the maximum number of sandboxes that start at once; further calls of Start wait. While the daemon
	// is slow, fewer start. 0 means two for each core of this machine.
	MaxStarting int
	// MaxRunning is the maximum number of sandboxes of this provider that exist at once. Kept sandboxes count until
	// they are closed. Further calls of Start wait until a sandbox is closed. 0 means no limit.
	MaxRunning int
	// Lease is how long a sandbox may last if other users of the daemon cannot see whether this process lives, for
	// example because they run on another machine. Their cleanup leaves the sandbox alone for that long. It leaves it
	// alone for longer while it sees the file in $XDG_STATE_HOME/fumehood/owners that this process updates each minute.
	// 0 means DefaultLease.
	Lease time.Duration
	// NoReaper disables the reaper. The reaper is a second process of this program. It removes this provider's
	// sandboxes if this process ends without doing so, for example because it is killed. A program that does not call
	// RunReaper has no reaper either. Without a reaper, the next process that starts a sandbox removes them, or Cleanup
	// does.
	NoReaper bool
	// NoSweep leaves the objects of ended processes to Cleanup. Otherwise they are removed while the first sandbox
	// starts.
	NoSweep bool
	// Seccomp is the file of the containers' seccomp profile, in the format of `docker run --security-opt
	// seccomp=FILE`, or fumehood.SeccompBrowsers. Empty means Fumehood's own profile; SECURITY.md lists what it denies.
	// "unconfined" allows every system call. A service with its own profile (Compose.AllowUnsafe) keeps it, and a
	// privileged service gets none.
	Seccomp string
	// Runtime is the name of the sandboxes' container runtime, such as runsc for gVisor. Empty means the daemon's
	// default. The runtime of a spec or Compose file takes precedence only if it isolates no less.
	Runtime string
	// AllowUnenforcedLimits runs sandboxes even if the daemon cannot enforce their limits, including the default ones.
	// This is the case without control groups. Only the memory limit applies then, to each process separately. Info and
	// the log name the limits that are not enforced. If it is not set, such a start returns ErrUnsupported.
	AllowUnenforcedLimits bool
	// Logger receives warnings and what weakens the isolation. Nil disables logging.
	Logger *slog.Logger
	// Progress is called for the steps of a start that may take long. It is called concurrently and must not block. Nil
	// disables progress reports.
	Progress func(provider.Progress)

	speedup engine.Speedup // of timeouts and pauses, for tests
}

// Transport is how commands reach a sandbox.
type Transport string

const (
	// TransportGuest runs commands through Fumehood's own program in the sandbox. A command takes about a millisecond.
	// A kill reaches all of its processes, and there is evidence of how it ended.
	TransportGuest Transport = "guest"
	// TransportEngine runs each command by an exec of the Engine. It trusts nothing in the sandbox. It is slower and
	// does not support everything: see docs/promises.md.
	TransportEngine Transport = "engine"
)

// Provider runs sandboxes on one Docker Engine.
type Provider struct {
	opts    Options
	self    owner.ID
	compose *composesdk.SDK
	engine  *engine.Client
	watch   *engine.Watch
	sockets sockets

	stateDir string // holds the sandboxes' folders; empty if there are none
	clock    func() time.Time
	among    func(o sweep.Object) bool // selects what all cleanups consider; nil means everything
	life     box.Life

	guestWithin time.Duration                                                                     // bounds the first exchange with a guest
	guestFor    func(ctx context.Context, arch string, log *slog.Logger) (guestbin.Binary, error) // guestbin.For

	images image.Preparer

	guests image.Flights // by architecture
	infos  image.Flights // one key: what the daemon reports about itself

	subnets   subnets
	admission *admission

	seccompLogged sync.Once

	mu         sync.Mutex
	volumes    map[string]*guestVolumeOf // by architecture: the guest volume known to exist
	badVolumes map[string]bool           // by name: guest volumes with other content
	daemon     *engine.Info              // what the daemon reported about itself; nil before it was asked
}

var _ fumehood.Provider = (*Provider)(nil)

// ErrNoDaemon matches the error of New if there is no daemon for this user: nothing names one (Options, DOCKER_HOST, a
// docker context), and nothing listens at the default sockets, or this user may not connect to them.
var ErrNoDaemon = errors.New("there is no Docker daemon")

type noDaemon struct{ error }

func (n noDaemon) Unwrap() []error { return []error{n.error, ErrNoDaemon} }

// New connects to the daemon. If the daemon does not answer, New returns an ErrUnavailable that names the endpoint. The
// client libraries may write warnings to logrus' standard logger, which the program can configure.
func New(ctx context.Context, opts Options) (*Provider, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Progress == nil {
		opts.Progress = func(provider.Progress) {}
	}
	if opts.DefaultImage == "" {
		opts.DefaultImage = DefaultImage
	}
	if opts.Lease < 0 {
		return nil, &fumehood.Error{Op: "connect", Class: fumehood.ErrConfig, Err: fmt.Errorf("lease %v is negative", opts.Lease)}
	}
	if opts.Lease == 0 {
		opts.Lease = DefaultLease
	}
	switch opts.Transport {
	case "":
		opts.Transport = TransportGuest
	case TransportGuest, TransportEngine:
	default:
		return nil, &fumehood.Error{
			Op: "connect", Class: fumehood.ErrConfig,
			Err: fmt.Errorf("unknown transport %q: choose %s or %s", opts.Transport, TransportGuest, TransportEngine),
		}
	}
	self, err := owner.Self()
	if err != nil {
		return nil, &fumehood.Error{Op: "identify this process", Class: fumehood.ErrInfrastructure, Err: err}
	}
	if err := opts.checkAdmission(); err != nil {
		return nil, err
	}
	profile, others, err := loadProfiles(opts)
	if err != nil {
		return nil, err
	}
	admission := newAdmission(opts.MaxStarting, opts.MaxRunning)
	c, err := composesdk.Connect(ctx, composesdk.Options{
		Host: opts.Host, Context: opts.Context, Logger: opts.Logger, Latency: admission.recordAnswer, Seccomp: profile, Profiles: others,
		Unheld: opts.checkEnforced, Speedup: opts.speedup,
	})
	if err != nil {
		return nil, err
	}
	p := &Provider{
		opts: opts, self: self, compose: c, engine: c.Engine, guestFor: guestbin.For, guestWithin: startTimeout,
		volumes: map[string]*guestVolumeOf{}, badVolumes: map[string]bool{}, admission: admission, clock: time.Now,
	}
	p.images = image.Preparer{Store: engineImages{p}, Builder: engineImages{p}, Builtin: p.builtin, Logger: opts.Logger, Progress: opts.Progress, Waits: image.Waits}
	err = c.Engine.Connect(ctx)
	if err == nil && opts.StrictPrereqs {
		err = p.checkEngine(ctx)
	} else if err != nil && !c.Named && engine.IsAbsent(err) {
		err = noDaemon{err}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.Settle()
	p.findStateDir()
	p.live()
	p.watch = p.engine.Watch(ctx, owner.LabelOwner+"="+self.String())
	return p, nil
}

// Name returns "docker".
func (p *Provider) Name() string { return "docker" }

// Start starts a sandbox. It gets missing images, creates the project, starts it, and returns when
// all services are ready.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	return p.life.Start(ctx, spec)
}

// driver makes the sandboxes of a provider.
type driver struct{ *Provider }

var _ box.Driver = driver{}

// Plan checks a spec, and sets its image and runtime.
func (p driver) Plan(ctx context.Context, spec fumehood.Spec) (box.Body, error) {
	if spec.Image == "" && spec.Compose == nil {
		spec.Image = p.opts.DefaultImage
	}
	if err := p.checkNetwork(ctx, spec); err != nil {
		return nil, err
	}
	if err := seccomp.Check(spec.Seccomp, p.opts.Seccomp); err != nil {
		return nil, err
	}
	if err := p.checkEngine(ctx); err != nil {
		return nil, err
	}
	if err := p.checkDisk(spec); err != nil {
		return nil, err
	}
	mounts, err := p.checkMounts(spec)
	if err != nil {
		return nil, err
	}
	if spec.Runtime, err = p.chooseRuntime(ctx, spec); err != nil {
		return nil, err
	}
	sb := &sandbox{Sandbox: box.Sandbox{Spec: spec}, p: p.Provider, mounts: mounts}
	if spec.Keep && p.opts.Transport == TransportGuest {
		sb.Key = box.NewKey()
	}
	return sb, nil
}

// checkNetwork rejects a network that does not exist.
func (p *Provider) checkNetwork(ctx context.Context, spec fumehood.Spec) error {
	switch spec.Network.Mode {
	case "", fumehood.NetworkNone, fumehood.NetworkBridge, fumehood.NetworkHost:
		return nil
	}
	there, err := p.engine.HasNetwork(ctx, spec.Network.Mode)
	if err == nil && !there {
		err = &fumehood.Error{
			Op: "start sandbox " + spec.Name, Class: fumehood.ErrConfig, Err: fmt.Errorf("there is no network %q", spec.Network.Mode),
			Hint: "`docker network ls` lists the networks",
		}
	}
	return err
}

// mountHint returns the hint for a daemon that does not see this machine's files.
func (p *Provider) mountHint() string {
	if p.engine.Local() {
		return ""
	}
	return engine.UploadHint
}

// closeTimeout bounds the removal of everything that a provider holds.
const closeTimeout = 60 * time.Second

// Close removes every sandbox that this provider still holds, except kept ones that have started. It ends starts. After an
// error, another call tries again what is left.
func (p *Provider) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.speedup.Of(closeTimeout))
	defer cancel()
	err := p.life.Open.Close(ctx)
	p.life.Leave(err == nil)
	p.watch.Close()
	return errors.Join(err, p.compose.Close())
}
