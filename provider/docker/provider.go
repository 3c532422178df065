// Package docker is the provider that runs sandboxes as Compose projects on a Docker Engine, 20.10 or
// newer, through the Compose SDK in process. No docker binary is needed.
package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/composesdk"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/guestbin"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/seccomp"
	"github.com/fumehood/fumehood/internal/sweep"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// DefaultImage is the image of a sandbox whose spec names none.
const DefaultImage = "python:3.12-slim"

// DefaultLease is how long a sandbox is left alone where nothing tells whether its owner lives.
const DefaultLease = 7 * 24 * time.Hour

// Options configures a provider. The zero value finds the daemon as the docker CLI does and logs nothing.
type Options struct {
	// Host is the daemon's address as DOCKER_HOST has it, Context the name of a docker context. At most
	// one is set. Both empty: DOCKER_HOST, else the current context, else the rootless daemon's socket,
	// else the default socket.
	Host, Context string
	// Transport says how commands reach a sandbox. Empty means TransportGuest.
	Transport Transport
	// DefaultImage is used where a spec names no image. Empty means the constant DefaultImage.
	DefaultImage string
	// StrictPrereqs makes an Engine older than 24.0.6 an error; else there is one warning.
	StrictPrereqs bool
	// NoSockets reaches guests through the daemon only, and mounts nothing of the host for it: slower.
	NoSockets bool
	// StateDir holds a folder for each sandbox while it is there, with its project as a Compose file and its
	// sockets: see docs/design/sandbox.md.
	// Empty means $XDG_STATE_HOME/fumehood/docker, or .local/state/fumehood/docker in the user's home.
	StateDir string
	// ClassicBuilder builds what users have written Dockerfiles for by the Engine's own builder, even where it has BuildKit.
	ClassicBuilder bool
	// MaxStarting is how many sandboxes start at once at most; further calls of Start wait for their turn. While the
	// daemon is slow, fewer do. 0 means two for each core of this machine.
	MaxStarting int
	// MaxRunning is how many sandboxes that this provider has started are there at once at most, kept ones included until
	// they are closed; further calls of Start wait until one is closed. 0 means any number.
	MaxRunning int
	// Lease is how long a sandbox may last where others who share the daemon cannot see whether this process lives, as from
	// another machine: their clean-up leaves it alone for that long, and longer while they see the file in which this
	// process says each minute that it lives, in $XDG_STATE_HOME/fumehood/owners. 0 means DefaultLease.
	Lease time.Duration
	// NoReaper starts no reaper: a second process of this program that removes this provider's sandboxes should this one
	// end without doing so, killed for instance. See RunReaper, without which none is started either.
	// Without one, the next process that starts a sandbox removes them, or Cleanup.
	NoReaper bool
	// NoSweep leaves what ended processes left to Cleanup; else it is removed while the first sandbox is started.
	NoSweep bool
	// Seccomp is the file of the seccomp profile of containers, as `docker run --security-opt seccomp=FILE` reads it. Empty
	// means Fumehood's own profile, and "unconfined" allows every system call; SECURITY.md says what is denied. It
	// replaces neither the profile of a service that has its own (Compose.AllowUnsafe), nor is a privileged one given any.
	Seccomp string
	// Runtime is the name of the container runtime of sandboxes, such as runsc for gVisor. Empty means the daemon's default.
	// A spec or a Compose file that names another one replaces it only where that isolates no less.
	Runtime string
	// AllowUnenforcedLimits has sandboxes run where the daemon cannot hold their limits, the default ones included, as one
	// without control groups. Each process is held to the limit of memory then, and nothing to the others; Info and the log tell
	// which limits are not held. Else such a start is an ErrUnsupported.
	AllowUnenforcedLimits bool
	// Logger receives warnings and what loosens the isolation. Nil logs nothing.
	Logger *slog.Logger
	// Progress is told what a start is busy with that may take long. It is called from several
	// goroutines at once, and must not block. Nil tells nobody.
	Progress func(Progress)

	speedup engine.Speedup // of timeouts and pauses, for tests
}

// Transport is a way in which commands reach a sandbox.
type Transport string

const (
	// TransportGuest runs commands through Fumehood's own program in the sandbox: in about a millisecond,
	// ended to the last process, with evidence of how they ended.
	TransportGuest Transport = "guest"
	// TransportEngine runs each command by an exec of the Engine. Nothing in the sandbox is trusted; it
	// is slower, and cannot do all: see docs/promises.md.
	TransportEngine Transport = "engine"
)

// Progress is one step of pulling or building an image.
type Progress struct {
	Build          bool   // Status is the step that has begun, and there is no more
	Image          string // the image's reference, or the service whose image is built
	Layer          string // the layer's short id; empty for the image as a whole
	Status         string // "Downloading", "Pull complete" ...
	Current, Total int64  // bytes; Total is 0 where it is not known
}

// Provider runs sandboxes on one Docker Engine.
type Provider struct {
	opts    Options
	self    owner.ID
	compose *composesdk.SDK
	engine  *engine.Client
	watch   *engine.Watch
	server  engine.Server
	sockets sockets

	stateDir string // the sandboxes' folders are in it; empty where there are none
	clock    func() time.Time
	among    func(o sweep.Object) bool // what all clean-ups look at; nil means everything
	presence presence

	guestWithin time.Duration                                                                     // bounds the first exchange with a guest
	guestFor    func(ctx context.Context, arch string, log *slog.Logger) (guestbin.Binary, error) // guestbin.For

	busyWaits []time.Duration // as the variable

	pulls  flights // by image and platform
	builds flights // by what is built
	guests flights // by architecture
	infos  flights // one: what the daemon reports about itself

	subnets   subnets
	admission *admission

	seccompLogged sync.Once

	mu         sync.Mutex
	held       map[string]*sandbox       // by name: started by this provider and not removed
	volumes    map[string]*guestVolumeOf // by architecture: the guest volume that is known to be there
	badVolumes map[string]bool           // by name: guest volumes that hold something else
	daemon     *engine.Info              // what the daemon reported about itself; nil before it was asked
	closed     bool
}

var _ fumehood.Provider = (*Provider)(nil)

// New connects to the daemon. A daemon that does not answer is an ErrUnavailable that names the endpoint. The libraries by which
// it speaks to the daemon may write warnings to logrus' standard logger, which is the program's to set.
func New(ctx context.Context, opts Options) (*Provider, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Progress == nil {
		opts.Progress = func(Progress) {}
	}
	if opts.DefaultImage == "" {
		opts.DefaultImage = DefaultImage
	}
	if opts.Lease < 0 {
		return nil, &fumehood.Error{Op: "connect", Class: fumehood.ErrConfig, Err: fmt.Errorf("a lease of %v is over before it begins", opts.Lease)}
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
			Err: fmt.Errorf("there is no transport %q, only %s and %s", opts.Transport, TransportGuest, TransportEngine),
		}
	}
	self, err := owner.Self()
	if err != nil {
		return nil, &fumehood.Error{Op: "identify this process", Class: fumehood.ErrInfrastructure, Err: err}
	}
	if err := opts.checkAdmission(); err != nil {
		return nil, err
	}
	profile, err := seccomp.Load(opts.Seccomp)
	if err != nil {
		return nil, err
	}
	admission := newAdmission(opts.MaxStarting, opts.MaxRunning)
	c, err := composesdk.Connect(ctx, composesdk.Options{
		Host: opts.Host, Context: opts.Context, Logger: opts.Logger, Latency: admission.answered, Seccomp: profile, Unheld: opts.unheld, Speedup: opts.speedup,
	})
	if err != nil {
		return nil, err
	}
	p := &Provider{
		opts: opts, self: self, compose: c, engine: c.Engine, guestFor: guestbin.For, guestWithin: startTimeout,
		held: map[string]*sandbox{}, volumes: map[string]*guestVolumeOf{}, badVolumes: map[string]bool{}, admission: admission, clock: time.Now, busyWaits: busyWaits,
	}
	if p.server, err = c.Engine.Connect(ctx); err == nil {
		err = p.checkEngine()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.Settle()
	p.findStateDir()
	p.watch = p.engine.Watch(ctx, owner.LabelOwner+"="+self.String())
	return p, nil
}

// checkEngine warns of an old Engine, or refuses it.
func (p *Provider) checkEngine() error {
	if !engine.VersionLess(p.server.Version, engine.GoodEngine) {
		return nil
	}
	reason := fmt.Sprintf("Docker Engine %s is older than %s", p.server.Version, engine.GoodEngine)
	if p.opts.StrictPrereqs {
		return &fumehood.Error{
			Op: "check prerequisites", Class: fumehood.ErrConfig, Err: errors.New(reason),
			Hint: "upgrade the Engine, or run without strict prerequisites",
		}
	}
	p.opts.Logger.Warn(reason+": it works, but lacks later fixes of its isolation", "endpoint", p.engine.Endpoint())
	return nil
}

// Name is "docker".
func (p *Provider) Name() string { return "docker" }

// Start makes a sandbox: it gets the images that the daemon has not, creates the project, generated or loaded,
// starts it, and returns when all services are ready.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	if spec.Image == "" && spec.Compose == nil {
		spec.Image = p.opts.DefaultImage
	}
	if spec.Name == "" {
		spec.Name = "fumehood-" + strings.ToLower(rand.Text()[:12])
	}
	rec := provider.NewRecorder(&spec)
	sb, err := p.begin(ctx, spec, rec)
	if err != nil {
		return nil, rec.Failed(err)
	}
	p.logSeccomp()
	p.logRuntime(sb.spec)
	if spec.Compose == nil {
		p.logLoosened(spec)
	} else {
		sb.logChanges(ctx)
	}
	return provider.New(sb, sb.spec, rec), nil
}

// begin makes a sandbox, whose spec has all that it needs.
func (p *Provider) begin(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder) (*sandbox, error) {
	op := "start sandbox " + spec.Name
	err := p.check(ctx, spec)
	var mounts []wire.FileID
	if err == nil {
		mounts, err = p.checkMounts(spec)
	}
	if err == nil {
		spec.Runtime, err = p.chooseRuntime(ctx, spec)
	}
	if err != nil {
		return nil, err
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	sb := &sandbox{p: p, spec: spec, rec: rec, mounts: mounts, giveUp: giveUp, settled: make(chan struct{})}
	defer close(sb.settled)
	if spec.Keep && p.opts.Transport == TransportGuest {
		sb.key = make([]byte, wire.SecretSize)
		_, _ = rand.Read(sb.key) // it never fails
	}
	if spec.TTL > 0 {
		sb.expires = time.Now().Add(spec.TTL)
	}
	end := rec.Phase("images")
	arch, err := sb.prepare(ctx)
	end(err)
	if err != nil {
		return nil, within(ctx, op, err)
	}
	if err := p.admission.enter(ctx); err != nil {
		return nil, within(ctx, op, err)
	}
	if err := p.hold(sb); err != nil {
		p.admission.started()
		p.admission.left()
		return nil, err
	}
	sb.admitted = true
	p.attend(ctx, spec.Keep)
	err = p.up(ctx, sb, arch)
	p.admission.started()
	if err != nil {
		// The first cause stays the class; trouble with the clean-up is told with it.
		end := rec.Phase("close")
		trouble := sb.Close(ctx)
		end(trouble)
		return nil, within(ctx, op, err, trouble)
	}
	return sb, nil
}

// within says what was being done when err came, and calls it cancelled where ctx had ended. Trouble with what
// was done about it is told with it.
func within(ctx context.Context, op string, err error, trouble ...error) error {
	e := &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: err}
	var known *fumehood.Error
	if ctx.Err() != nil {
		e.Class, e.Err = fumehood.ErrCancelled, fumehood.Ended(ctx)
		if cause := context.Cause(ctx); cause == errProviderClosed { //nolint:errorlint // the cause itself: the caller has cancelled nothing
			e.Class, e.Err = fumehood.ErrUnavailable, cause
		}
	} else if errors.As(err, &known) {
		e.Class = fumehood.ClassOf(err)
	}
	if t := errors.Join(trouble...); t != nil {
		e.Err = fmt.Errorf("%w\nand then: %s", e.Err, t.Error())
	}
	return e
}

// minPIDs is the least limit of processes with a guest. It has 14 threads, a worker 8, and Go ends a program
// that gets no thread when it needs one: with a limit of 24 fork bombs ended workers, with 48 none.
const minPIDs = 48

// check refuses a spec that cannot be started, before anything is made.
func (p *Provider) check(ctx context.Context, spec fumehood.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if n := spec.Limits.PIDs; n > 0 && n < minPIDs && p.opts.Transport == TransportGuest {
		return &fumehood.Error{
			Op: "start sandbox " + spec.Name, Class: fumehood.ErrConfig,
			Err:  fmt.Errorf("a limit of %d processes is below the least with which commands can be run, %d: the guest's own threads count too", n, minPIDs),
			Hint: "raise Limits.PIDs, or limit commands with Rlimits.Processes",
		}
	}
	switch spec.Network.Mode {
	case "", fumehood.NetworkNone, fumehood.NetworkBridge, fumehood.NetworkHost:
		return nil
	}
	there, err := p.engine.HasNetwork(ctx, spec.Network.Mode)
	if err == nil && !there {
		err = &fumehood.Error{
			Op: "start sandbox " + spec.Name, Class: fumehood.ErrConfig, Err: fmt.Errorf("there is no network %q", spec.Network.Mode),
			Hint: "`docker network ls` lists those that there are",
		}
	}
	return err
}

// mountHint is what to do where the daemon does not see this machine's files.
func (p *Provider) mountHint() string {
	if p.engine.Local() {
		return ""
	}
	return engine.UploadHint
}

// errProviderClosed is why a sandbox does not start whose provider is closed before or meanwhile.
var errProviderClosed = errors.New("the provider is closed")

func (p *Provider) hold(sb *sandbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrUnavailable, Err: errProviderClosed}
	}
	if p.held[sb.spec.Name] != nil {
		return &fumehood.Error{Op: "start sandbox", Class: fumehood.ErrConfig, Err: fmt.Errorf("this provider has a sandbox %s already", sb.spec.Name)}
	}
	p.held[sb.spec.Name] = sb
	return nil
}

func (p *Provider) release(sb *sandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[sb.spec.Name] != sb {
		return
	}
	delete(p.held, sb.spec.Name)
	if sb.admitted {
		p.admission.left()
	}
}

// closeTimeout bounds the removal of all that a provider holds.
const closeTimeout = 60 * time.Second

// Close removes every sandbox that this provider still holds, except kept ones that have started. Starts are given up:
// those that have begun to make something at once, others when they come to it. A second call does nothing.
func (p *Provider) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	var held []*sandbox
	for _, sb := range p.held {
		held = append(held, sb)
		if sb.giveUp != nil {
			sb.giveUp(errProviderClosed)
		}
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.speedup.Of(closeTimeout))
	defer cancel()
	err := inParallel(len(held), func(i int) error {
		if err := held[i].settle(ctx); err != nil {
			return err
		}
		return held[i].Close(ctx)
	})
	p.leave(err == nil)
	p.watch.Close()
	return errors.Join(err, p.compose.Close())
}

// inParallel calls f for 0 to n-1 and joins the errors.
func inParallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	slots := make(chan struct{}, removals)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = f(i)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
