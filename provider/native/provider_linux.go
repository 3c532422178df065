//go:build amd64 || arm64

package native

import (
	"context"
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
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/native/filter"
	"github.com/fumehood/fumehood/internal/native/imagestore"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/seccomp"
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
	images    image.Preparer
	beginning atomic.Int64           // services whose start has begun, see machine.admit
	ids       *subordinate           // nil if sandboxes have one user, or this process is root
	filter    []byte                 // of system calls; nil allows all
	filters   sync.Map               // others: functions that compile them once, by filterKey
	profile   func() (string, error) // reads the seccomp profile for a runtime

	life      box.Life
	unlimited sync.Once // logs that limits are not enforced
	copying   sync.Once // logs that layers are copied

	building sync.Mutex
	built    preparer // nil until an image is built

	lives context.Context // ends at Close
	end   context.CancelFunc
}

var _ fumehood.Provider = (*Provider)(nil)

// CheckSupport returns an ErrUnsupported if this user or machine cannot make sandboxes, without trying it.
func CheckSupport() error {
	if err := checkMachine(rootless()); err != nil || !rootless() {
		return err
	}
	return checkNamespaces()
}

// checkMachine returns an ErrUnsupported if no sandbox can be started here: in user namespaces, or without. Where a part of
// /proc is hidden, those of gVisor can.
func checkMachine(namespaces bool) error {
	if err := checkKernel(); err != nil {
		return err
	}
	switch err := checkFilter(); {
	case !namespaces:
		return err
	case err != nil || checkUserns() != nil:
		return checkNamespaces() // it names everything
	}
	return nil
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

// New returns a provider. Its error is an ErrUnsupported as of CheckSupport, or an ErrConfig if no directory for the state
// can be determined.
func New(ctx context.Context, opts Options) (*Provider, error) {
	const op = "make native provider"
	if err := checkMachine(opts.UserNamespace || rootless()); err != nil {
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
	if opts.Progress == nil {
		opts.Progress = func(provider.Progress) {}
	}
	p := &Provider{opts: opts, log: opts.Logger, stateDir: dir, cacheDir: cache}
	p.lives, p.end = context.WithCancel(context.WithoutCancel(ctx))
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.live()
	if p.filter, err = p.seccomp(); err != nil {
		return nil, err
	}
	p.guest = sync.OnceValues(func() (string, error) {
		file, err := install(context.WithoutCancel(ctx), filepath.Join(cache, "guest"), p.log)
		if rootless() { // this process has to open files in /proc of what it starts
			file = filepath.Join(filepath.Dir(file), readableGuest)
		}
		return file, err
	})
	images, stored := "images", imagestore.Options{OneOwner: rootless(), Logger: p.log, Progress: opts.Progress}
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
	p.images = p.preparer(false)
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
	return p.life.Start(ctx, spec)
}

// driver makes the sandboxes of a provider.
type driver struct{ *Provider }

var _ box.Driver = driver{}

// Plan checks a spec.
func (p driver) Plan(ctx context.Context, spec fumehood.Spec) (box.Body, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := p.checkSpec(spec); err != nil {
		return nil, err
	}
	if err := seccomp.Check(spec.Seccomp, p.opts.Seccomp); err != nil {
		return nil, err
	}
	mounts, err := p.checkMounts(spec)
	if err != nil {
		return nil, err
	}
	flat := spec
	if hasDockerfile(spec) { // it becomes an image
		flat.Compose = nil
	}
	runtime, err := p.runtimeOf(flat)
	if err == nil && runtime == nil && p.inUserNamespace() {
		err = checkNamespaces()
	}
	if err != nil {
		return nil, err
	}
	sb := &sandbox{Sandbox: box.Sandbox{Spec: spec}, p: p.Provider, mounts: mounts, oci: runtime}
	sb.About.OneUser = rootless() && p.ids == nil && runtime == nil // gVisor has users of its own
	if spec.Keep {
		sb.Key = box.NewKey()
	}
	return sb, nil
}

// checkSpec returns an error if spec has a field that this provider does not support.
func (p *Provider) checkSpec(spec fumehood.Spec) error {
	var feature, hint string
	switch {
	case !spec.Network.IsNone() && spec.Network.Mode != fumehood.NetworkBridge:
		feature, hint = fmt.Sprintf("use the network %q", spec.Network.Mode), "use none or bridge, or the docker provider"
	case spec.Keep && len(spec.Ports) > 0:
		feature, hint = "publish ports of a kept sandbox", "use `fumehood forward`, or the docker provider"
	case spec.Limits.Disk == fumehood.NoLimit:
		feature, hint = "leave the disk of a sandbox without a limit", "set a disk limit, or use the docker provider"
	case rootless() && onDisk(spec.Limits.WithDefaults()):
		feature = "give a sandbox a disk that is not in memory without root"
		hint = "lower the disk limit to at most 1 GiB and half of the memory limit, or " + rootHint()
	case !spec.Network.IsNone():
		_, err := NetworkHelper()
		return err
	default:
		return nil
	}
	return &fumehood.Error{
		Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: errors.New("the native provider cannot " + feature), Hint: hint,
	}
}

// Prepare gets the images, and plans the services.
func (sb *sandbox) Prepare(ctx context.Context) error {
	p := sb.p
	spec, err := p.withoutDockerfile(ctx, sb.Spec, provider.PrepareOptions{})
	if err != nil {
		return err
	}
	if sb.plans, err = sb.planServices(ctx, spec); err != nil {
		return sb.dropImages(err)
	}
	for _, plan := range sb.plans {
		if sb.About.Unenforced, err = p.unenforcedLimits(plan.Spec, sb.oci); err != nil {
			return sb.dropImages(err)
		}
		provider.LogLoosened(p.life.LoggerOf(plan.Spec), plan.Spec)
	}
	return nil
}

// planServices returns the services of a spec without a Dockerfile, the default one first. With an error, the caller must
// release the images all the same.
func (sb *sandbox) planServices(ctx context.Context, spec fumehood.Spec) ([]servicePlan, error) {
	project, err := sb.p.project(ctx, spec, sb.Rec)
	if err != nil {
		return nil, err
	}
	plans, err := project.plan(ctx)
	for i := range plans {
		plan := &plans[i]
		if spec.Compose == nil { // checked before the image was looked up
			plan.mounts = sb.mounts
			continue
		}
		if err == nil {
			err = sb.p.checkSpec(plan.Spec)
		}
		if err == nil {
			plan.mounts, err = sb.p.checkMounts(plan.Spec)
		}
	}
	return plans, err
}

// Admit returns an ErrLimit if the machine has no room for the sandbox.
func (sb *sandbox) Admit(context.Context) (started, left func(), err error) {
	n := int64(len(sb.plans))
	started = func() { sb.p.beginning.Add(-n) }
	if err := thisMachine().admit(sb.p.beginning.Add(n)); err != nil {
		started()
		return nil, nil, sb.dropImages(err)
	}
	return started, nil, nil
}

// Make makes the sandbox's services, starts their programs, and forwards their ports.
func (sb *sandbox) Make(ctx context.Context) error {
	end := sb.Rec.Phase("start")
	err := sb.make(ctx)
	end(err)
	return err
}

func (sb *sandbox) make(ctx context.Context) (err error) {
	p, name := sb.p, sb.Spec.Name
	if sb.guest, err = p.guest(); err != nil {
		return err
	}
	folder, err := owner.MakeFolder(p.stateDir, name, false)
	if errors.Is(err, fs.ErrExist) {
		return &fumehood.Error{
			Class: fumehood.ErrConfig, Err: fmt.Errorf("sandbox %q already exists: %s", name, filepath.Join(p.stateDir, name)),
			Hint: "choose another name, or remove it with `fumehood cleanup " + name + "`",
		}
	}
	if err != nil {
		return err
	}
	sb.folder = folder
	if err := recordGroups(folder); err != nil {
		return err
	}
	for _, plan := range sb.plans {
		s, err := sb.newService(plan, len(sb.plans) > 1)
		if err != nil {
			return err
		}
		sb.add(s)
	}
	if !sb.plans[0].Spec.Network.IsNone() {
		if sb.network, err = newNetwork(); err != nil {
			return err
		}
	}
	sb.planVolumes()
	for i, s := range sb.services { // the first one makes what all share
		if err := s.build(ctx); err != nil {
			return sb.InService(ctx, s.Service, err)
		}
		if i == 0 {
			sb.spread()
		}
	}
	if err := sb.StartServices(ctx, p.log.With("sandbox", name)); err != nil {
		return err
	}
	for _, s := range sb.services {
		s.main.Settle()
	}
	if sb.Spec.Keep {
		return sb.keep(ctx)
	}
	return nil
}

// Close ends starts, and closes the sandboxes that are still open. Afterwards none can be started.
func (p *Provider) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := p.life.Open.Close(ctx)
	p.end()
	err = errors.Join(err, p.closeBuilder(ctx))
	p.life.Leave(err == nil)
	return err
}
