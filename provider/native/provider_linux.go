//go:build amd64 || arm64

package native

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/native/filter"
	"github.com/fumehood/fumehood/internal/native/imagestore"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/seccomp"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// Provider runs sandboxes on this machine.
type Provider struct {
	opts      Options
	log       *slog.Logger
	stateDir  string
	cacheDir  string
	guest     func() (string, error) // installs the guest's program once, and returns its path
	store     *imagestore.Store
	beginning atomic.Int64           // services whose start has begun, see machine.admit
	ids       *subordinate           // nil if sandboxes have one user, or this process is root
	filter    []byte                 // of system calls; nil allows all
	filters   sync.Map               // others: functions that compile them once, by filterKey
	profile   func() (string, error) // reads the seccomp profile for a runtime

	presence  box.Presence
	open      box.Set[*sandbox]
	unlimited sync.Once // logs that limits are not enforced
	copying   sync.Once // logs that layers are copied

	building sync.Mutex
	built    preparer // nil until an image is built

	life context.Context // ends at Close
	end  context.CancelFunc
}

var _ fumehood.Provider = (*Provider)(nil)

// Supported returns an ErrUnsupported if this user or machine cannot make sandboxes, without trying it.
func Supported() error {
	if err := checkKernel(); err != nil || os.Geteuid() == 0 {
		return err
	}
	return usernsSupported()
}

// oldest is the oldest kernel that can make sandboxes: since 5.12 there is mount_setattr(2).
var oldest = filter.Kernel{Major: 5, Minor: 12}

// checkKernel returns an ErrUnsupported if the kernel is too old.
func checkKernel() error {
	const op = "make native provider"
	kernel, err := kernelVersion()
	if err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: err}
	}
	if kernel.Major < oldest.Major || kernel.Major == oldest.Major && kernel.Minor < oldest.Minor {
		return &fumehood.Error{
			Op: op, Class: fumehood.ErrUnsupported, Hint: "use the docker provider",
			Err: fmt.Errorf("the native provider needs Linux %d.%d, this is %d.%d", oldest.Major, oldest.Minor, kernel.Major, kernel.Minor),
		}
	}
	return nil
}

// New returns a provider. Its error is an ErrUnsupported as of Supported, or an ErrConfig if no directory for the state
// can be determined.
func New(ctx context.Context, opts Options) (*Provider, error) {
	const op = "make native provider"
	if err := Supported(); err != nil {
		return nil, err
	}
	var err error
	dir := opts.StateDir
	if dir == "" {
		dir, err = owner.StateDir("native")
	}
	cache := opts.CacheDir
	if cache == "" && err == nil {
		if cache, err = os.UserCacheDir(); err == nil {
			cache = filepath.Join(cache, "fumehood", "native")
		}
	}
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		cache, err = filepath.Abs(cache)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // the control groups' names depend on it
	}
	if err != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err, Hint: "set HOME, or XDG_STATE_HOME and XDG_CACHE_HOME"}
	}
	p := &Provider{opts: opts, log: opts.Logger, stateDir: dir, cacheDir: cache}
	p.life, p.end = context.WithCancel(context.WithoutCancel(ctx))
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.present()
	if p.filter, err = p.seccomp(); err != nil {
		return nil, err
	}
	if opts.UserNamespace {
		if err := usernsSupported(); err != nil {
			return nil, err
		}
	}
	p.guest = sync.OnceValues(func() (string, error) {
		file, err := install(context.WithoutCancel(ctx), filepath.Join(cache, "guest"), p.log)
		if rootless() { // this process has to open files in /proc of what it starts
			file = filepath.Join(filepath.Dir(file), readableGuest)
		}
		return file, err
	})
	images, stored := "images", imagestore.Options{OneOwner: rootless(), Logger: p.log, Progress: p.progress()}
	if rootless() {
		if p.ids, err = subordinateIDs(); err != nil {
			p.log.Debug("root is the only user of sandboxes", "reason", err)
		} else {
			p.ids.guest, stored.Owners = p.guest, p.ids
		}
		images = p.ids.storeName()
	}
	p.profile = sync.OnceValues(func() (string, error) { return seccomp.Load(opts.Seccomp) })
	if p.store, err = imagestore.Open(filepath.Join(cache, images), stored); err != nil {
		return nil, err
	}
	return p, nil
}

// Name returns "native".
func (p *Provider) Name() string { return "native" }

// Start starts a sandbox. Of Spec it supports Name, Image, Env, User, Dir, Network.Mode none and bridge, Ports, Limits,
// Mounts, Keep, TTL, Runtime, AllowUnsafe, Labels, ConfigFile, Journal and Logger, and Compose projects whose services can
// share one network namespace (docs/compose.md lists the keys). Binary has no effect. If any other field is set, a project
// has anything else, or a network needs a program that is not installed, the error is an ErrUnsupported. If the machine has no
// room for the sandbox, it is an ErrLimit.
func (p *Provider) Start(ctx context.Context, spec fumehood.Spec) (fumehood.Sandbox, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	starting, place, err := p.open.Begin(ctx, "")
	if err != nil {
		return nil, err
	}
	defer place.Settle()
	sb, err := p.startIn(starting, spec, place)
	if err != nil && box.IsClosed(starting) {
		return nil, box.Closed()
	}
	return sb, err
}

func (p *Provider) startIn(ctx context.Context, spec fumehood.Spec, place *box.Place[*sandbox]) (fumehood.Sandbox, error) {
	if err := p.supported(spec); err != nil {
		return nil, err
	}
	if err := seccomp.Check(spec.Seccomp, p.opts.Seccomp); err != nil {
		return nil, err
	}
	s, sb, err := provider.Start(ctx, spec, func(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder) (*sandbox, error) {
		return p.start(ctx, spec, rec, place)
	})
	if err != nil {
		return nil, err
	}
	place.Hold(s, sb.Close)
	return sb, nil
}

// supported returns an error if spec has a field that this provider does not support.
func (p *Provider) supported(spec fumehood.Spec) error {
	var what, hint string
	switch {
	case !spec.Network.IsNone() && spec.Network.Mode != fumehood.NetworkBridge:
		what, hint = fmt.Sprintf("use the network %q", spec.Network.Mode), "use none or bridge, or the docker provider"
	case spec.Keep && len(spec.Ports) > 0:
		what, hint = "publish ports of a kept sandbox", "use `fumehood forward`, or the docker provider"
	case spec.Limits.Disk == fumehood.NoLimit:
		what, hint = "leave the disk of a sandbox without a limit", "set a disk limit, or use the docker provider"
	case rootless() && onDisk(spec.Limits.WithDefaults()):
		what = "give a sandbox a disk that is not in memory without root"
		hint = "lower the disk limit to at most 1 GiB and half of the memory limit, or run as root"
	case !spec.Network.IsNone():
		_, err := NetworkHelper()
		return err
	default:
		return nil
	}
	return &fumehood.Error{
		Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: errors.New("the native provider cannot " + what), Hint: hint,
	}
}

// unit is a service to start.
type unit struct {
	spec   fumehood.Spec // of a sandbox of this service alone
	image  *imagestore.Image
	mounts []setup.Mount
	member *compose.Member // nil without a project
}

// closeImages releases the images of units that are not started.
func closeImages(units []unit) (err error) {
	for _, u := range units {
		err = errors.Join(err, u.image.Close())
	}
	return err
}

// resolve returns the services of a spec, the default one first. mounts are those of the spec.
func (p *Provider) resolve(ctx context.Context, spec fumehood.Spec, mounts []setup.Mount, rec *provider.Recorder) ([]unit, error) {
	if spec.Compose == nil {
		img, err := p.image(ctx, spec)
		return []unit{{spec: spec, image: img, mounts: mounts}}, err
	}
	project, err := p.project(ctx, spec, rec)
	if err != nil {
		return nil, err
	}
	units, err := project.units(ctx)
	for i := range units {
		u := &units[i]
		if err == nil {
			err = p.supported(u.spec)
		}
		if err == nil {
			u.mounts, err = p.checkMounts(u.spec)
		}
	}
	if err != nil {
		return nil, errors.Join(err, closeImages(units))
	}
	return units, nil
}

func (p *Provider) start(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder, place *box.Place[*sandbox]) (_ *sandbox, err error) {
	// Before an image is fetched or built.
	mounts, err := p.checkMounts(spec)
	if err != nil {
		return nil, err
	}
	asked, flat := spec, spec
	if hasDockerfile(spec) { // it becomes an image
		flat.Compose = nil
	}
	if _, err := p.runtimeOf(flat); err != nil {
		return nil, err
	}
	if spec, err = p.withoutDockerfile(ctx, spec, provider.PrepareOptions{}); err != nil {
		return nil, err
	}
	units, err := p.resolve(ctx, spec, mounts, rec)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeImages(units))
		}
	}()
	sb := &sandbox{p: p, name: spec.Name, place: place}
	sb.of.OneUser = rootless() && p.ids == nil
	for _, u := range units {
		if sb.of.Unenforced, err = p.unenforced(u.spec); err != nil {
			return nil, err
		}
		provider.LogLoosened(p.loggerOf(u.spec), u.spec)
	}
	if err := thisMachine().admit(p.beginning.Add(int64(len(units)))); err != nil {
		p.beginning.Add(-int64(len(units)))
		return nil, err
	}
	defer p.beginning.Add(-int64(len(units)))
	p.presence.Attend(ctx, false)
	if sb.guest, err = p.guest(); err != nil {
		return nil, err
	}
	sb.folder, err = owner.MakeFolder(p.stateDir, spec.Name, false)
	if errors.Is(err, fs.ErrExist) {
		return nil, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("sandbox %q already exists: %s", spec.Name, filepath.Join(p.stateDir, spec.Name)),
			Hint: "choose another name, or remove it with `fumehood cleanup " + spec.Name + "`",
		}
	}
	if err != nil {
		return nil, err
	}
	if err := recordGroups(sb.folder); err != nil {
		return nil, errors.Join(err, owner.Discard(sb.folder))
	}
	if spec.Keep {
		sb.key = make([]byte, wire.SecretSize)
		_, _ = rand.Read(sb.key) // never fails
	}
	for _, u := range units {
		s, err := sb.newService(u, len(units) > 1)
		if err != nil {
			return nil, errors.Join(err, owner.Discard(sb.folder))
		}
		sb.services = append(sb.services, s)
	}
	place.Hold(sb, sb.Close)
	if err := sb.build(ctx, units); err != nil {
		return nil, errors.Join(err, sb.Close(ctx))
	}
	if spec.Keep {
		if err := sb.keep(ctx, asked); err != nil {
			return nil, errors.Join(err, sb.Close(ctx))
		}
	}
	return sb, nil
}

// build makes the sandbox's services, starts their programs, and forwards their ports.
func (sb *sandbox) build(ctx context.Context, units []unit) (err error) {
	if !units[0].spec.Network.IsNone() {
		if sb.network, err = newNetwork(); err != nil {
			return err
		}
	}
	sb.planVolumes()
	for i, s := range sb.services { // the first one makes what all share
		if err := s.build(ctx); err != nil {
			return sb.inService(ctx, s, err)
		}
		if i == 0 {
			sb.spread()
		}
	}
	if err := sb.startMain(ctx, units[0].spec); err != nil {
		return err
	}
	for i, s := range sb.services {
		if err := s.publish(ctx, units[i].spec.Ports); err != nil {
			return sb.inService(ctx, s, err)
		}
	}
	return nil
}

// loggerOf returns the logger for settings that weaken a sandbox's isolation.
func (p *Provider) loggerOf(spec fumehood.Spec) *slog.Logger { return cmp.Or(spec.Logger, p.log) }

// Close ends starts, and closes the sandboxes that are still open. Afterwards none can be started.
func (p *Provider) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := p.open.Close(ctx)
	p.end()
	err = errors.Join(err, p.closeBuilder(ctx))
	p.presence.Leave(err == nil)
	return err
}
