//go:build amd64 || arm64

package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/native/imagestore"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/provider"
)

// service is the backend of one service of a sandbox. It has its own namespaces, root file system and control groups.
type service struct {
	*box.Service
	sb      *sandbox
	cgroup  cgroup
	config  setup.Config // as of the first process
	memory  int64        // the limit in bytes
	disk    int64        // the size of a volume in bytes
	profile string       // the Spec's Seccomp
	runs    bool         // its own program was started, by another process
	image   *imagestore.Image
	main    *box.Program // of a project; nil for others
	oci     *ociRuntime  // starts the guests; nil for none
	// starters is the control group of the runtime's own processes, outside of the sandbox's limits.
	starters cgroup
	volumes  []*os.File // mounts for config.Root.Volumes that another service has made, until it is started

	init    *process
	limiter *memoryLimiter // nil with control groups
	frozen  atomic.Bool
	ooms    atomic.Int64 // the number of out-of-memory kills; with control groups, when the service was removed
	before  int          // the number of out-of-memory kills before this process has opened the sandbox
	deaf    error        // why other processes cannot connect to the guest

	mu     sync.Mutex
	closed bool
	joined []*process // guests of other users
}

// newService returns a service of a sandbox that may have several. Nothing of it exists yet.
func (sb *sandbox) newService(plan servicePlan, several bool) (*service, error) {
	spec := plan.Spec
	limits := spec.Limits.WithDefaults()
	group, err := openCgroup(sb.folder, groupOf(sb.folder, plan.Name, several), limits)
	if err != nil {
		return nil, err
	}
	s := &service{Service: &box.Service{Service: plan.Service}, sb: sb, oci: sb.oci, cgroup: group, image: plan.image, memory: limits.Memory, disk: memoryDisk(limits)}
	if s.oci != nil && rootless() {
		s.starters = s.cgroup // nothing could move its processes later
	} else if s.oci != nil {
		if s.starters, err = openCgroup(sb.folder, startersName(sb.folder), fumehood.Limits{}); err != nil {
			return nil, err
		}
	}
	if s.oci == nil && (!rootless() || sb.p.ids == nil) { // only root can move threads of other users
		s.cgroup = s.cgroup.divide()
	}
	s.describe(plan, limits)
	s.planImageVolumes(&plan.Member)
	s.profile = spec.Seccomp
	s.config.Seccomp, err = sb.p.filterOf(filterKey{spec.Seccomp, s.config.Capabilities&(1<<unix.CAP_SYS_CHROOT) != 0})
	if err != nil {
		return nil, err
	}
	s.manageGuests()
	if spec.Compose != nil {
		s.main = box.NewProgram(sb.p.lives, &sb.Sandbox, s.Service, plan.Member, sb.p.log)
	}
	s.Service.Service.Forward = spec.Ports
	return s, nil
}

// runsProgram reports whether the service's own program was started.
func (s *service) runsProgram() bool { return s.runs || s.main.Runs() }

// manageGuests makes what needs the service's guests.
func (s *service) manageGuests() {
	s.Backend, s.Units = s, []box.Unit{unit{s}}
	s.Launch = func(ctx context.Context) error { return s.main.Launch(ctx) }
	s.Guests = newGuests(s)
	s.Forwards = box.NewPorts(s.Guests.Own, s.sb.p.log.With("sandbox", s.sb.Spec.Name, "service", s.Info.Name))
}

// describe fills in what the service is made of.
func (s *service) describe(plan servicePlan, limits fumehood.Limits) {
	spec, image := plan.Spec, s.image.Config
	env := image.Env
	for name, value := range spec.Env {
		env = append(slices.Clip(env), name+"="+value)
	}
	s.config = setup.Config{
		Root: &setup.Root{
			Layers: s.image.Layers, Scratch: filepath.Join(s.sb.folder, "fs"), Size: cmp.Or(limits.Disk, memoryDisk(limits)), OnDisk: onDisk(limits), Guest: filepath.Dir(s.sb.guest),
			Mounts: plan.mounts, Shm: plan.Shm, ReadOnly: plan.ReadOnly,
		},
		Hostname: plan.Hostname, Hosts: plan.Hosts, User: cmp.Or(spec.User, image.User), Dir: filepath.Clean("/" + cmp.Or(spec.Dir, image.WorkingDir)),
	}
	for _, name := range plan.Capabilities {
		s.config.Capabilities |= 1 << programCapabilities["CAP_"+name]
	}
	for _, t := range plan.Tmpfs {
		s.config.Root.Tmpfs = append(s.config.Root.Tmpfs, setup.Tmpfs(t))
	}
	if s.sb.p.inUserNamespace() {
		s.config.UserNamespace, s.config.Root.Passed, s.config.OneUser = true, !rootless(), s.sb.About.OneUser
		if s.oci == nil {
			s.config.Root.Scratch = scratch
		}
	}
	if !s.cgroup.has("pids") && limits.PIDs > 0 && s.config.UserNamespace && s.oci == nil { // elsewhere the host's processes of the same user would count
		s.config.Processes = uint64(limits.PIDs)
	}
	for _, kv := range env {
		name, _, set := strings.Cut(kv, "=")
		if set && !slices.Contains(plan.Unset, name) {
			s.Term = s.Term || name == "TERM"
			s.config.Env = append(s.config.Env, []byte(kv))
		}
	}
	s.Info = fumehood.ServiceInfo{Name: plan.Name, Image: s.image.Ref, User: s.config.User, Dir: s.config.Dir}
	s.Info.Disk, s.Info.DiskOn = s.config.Root.Size, "tmpfs"
	if s.config.Root.OnDisk {
		s.Info.DiskOn = "ext4"
	}
	if s.oci != nil {
		s.Info.Runtime = s.oci.name
	}
}

// Start runs a command through the guest of its user.
func (s *service) Start(ctx context.Context, cmd fumehood.Cmd, live bool, out provider.Sink) (provider.ProcessBackend, error) {
	if err := s.sb.network.checkHelper(); err != nil {
		return nil, err
	}
	return s.Service.Start(ctx, cmd, live, out)
}

// build starts the service. If it fails, close removes what was made.
func (s *service) build(ctx context.Context) error {
	if s.config.Root.Scratch != scratch {
		if err := os.Mkdir(s.config.Root.Scratch, 0o700); err != nil && !errors.Is(err, fs.ErrExist) { // of another service
			return err
		}
	}
	if err := s.makeSockets(); err != nil {
		return err
	}
	var held []*os.File
	if n := s.network(); n != nil {
		if err := n.allow(s.cgroup); err != nil {
			return err
		}
		held = append(held, n.writer)
	}
	if err := s.cgroup.create(); err != nil {
		return fmt.Errorf("make control groups: %w", err)
	}
	s.config.Root.Cgroups = s.cgroup.visible()
	limited := make(chan error, 1)
	go func() { limited <- s.cgroup.limit() }()
	var err error
	var disk *os.File
	if r := s.config.Root; r.OnDisk {
		if disk, err = makeDisk(ctx, s.sb.folder, r.Size, s.sb.rootID()); err != nil {
			return errors.Join(err, <-limited)
		}
		defer disk.Close() // the sandbox has it
	}
	if s.oci == nil {
		s.init, err = s.launchFirst(ctx, held)
	}
	if lerr := <-limited; lerr != nil {
		return fmt.Errorf("set limits: %w", lerr)
	}
	if s.oci != nil {
		err = s.launchRuntime(ctx, disk)
	}
	if err != nil {
		return launchFailure(err)
	}
	if err := s.prepareFirst(ctx); err != nil {
		return err
	}
	s.init.disk, s.init.volumes = disk, s.volumes
	if err := s.setUp(ctx); err != nil {
		return err
	}
	s.closeVolumes() // the sandbox has them
	if s.init.undivided {
		if err := s.cgroup.undivide(); err != nil {
			return fmt.Errorf("set limits: %w", err)
		}
	}
	if s.init.copied {
		s.sb.p.copying.Do(func() {
			s.sb.p.log.Warn("the kernel cannot mount images as an overlay: each sandbox has a copy, which counts against its disk limit")
		})
	}
	if !s.cgroup.has("memory") && s.memory > 0 {
		s.limiter = watchMemory(s.memory, &s.ooms, s.namespaceKind(), s.processes)
	}
	if err := s.Guests.Attach(ctx); err != nil {
		return err
	}
	return errors.Join(s.Guests.Ready(ctx), s.deaf)
}

// launchFailure returns the error of a first process that could not be started.
func launchFailure(err error) error {
	err = fmt.Errorf("start the guest in new namespaces: %w", err)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err, Hint: deniedHint()}
	}
	return err
}

// launchFirst starts the first process, with the descriptors more.
func (s *service) launchFirst(ctx context.Context, more []*os.File) (*process, error) {
	attributes, first := &unix.SysProcAttr{Cloneflags: namespaces}, s.sb.services[0]
	var before func() error
	switch {
	case s != first && s.config.UserNamespace:
		return launchShared(ctx, s.sb.guest, s.cgroup, s.config.Capabilities, first.init)
	case s != first:
		attributes.Cloneflags &^= unix.CLONE_NEWNET
		before = first.enterNetwork
	case s.config.UserNamespace:
		s.sb.p.mapIDs(attributes, s.sb.folder)
	}
	return launch(s.sb.guest, s.cgroup, s.config.Capabilities, attributes, "setup", before, more...)
}

// closeVolumes gives up the mounts of volumes, which stay where they are attached.
func (s *service) closeVolumes() {
	for _, v := range s.volumes {
		_ = v.Close() // nothing was written
	}
	s.volumes = nil
}

// enterNetwork moves the calling thread into the service's network namespace.
func (s *service) enterNetwork() error {
	return os.NewSyscallError("setns", unix.Setns(int(s.init.pidfd.Fd()), unix.CLONE_NEWNET)) //nolint:gosec // a descriptor
}

// network returns the network that starts with this service; nil if none does.
func (s *service) network() *network {
	if s != s.sb.services[0] {
		return nil
	}
	return s.sb.network
}

// setUp sends the first process its Config. Meanwhile the network starts.
func (s *service) setUp(ctx context.Context) error {
	if s.sb.network != nil {
		s.config.Resolver = resolver
	}
	n := s.network()
	if n == nil {
		return s.configure(ctx, s.init, s.config)
	}
	s.config.Prohibited, s.config.Held = n.prohibited, true
	connected := make(chan error, 1)
	go func() { connected <- n.connect(ctx, s.init, s.cgroup) }()
	err := s.configure(ctx, s.init, s.config)
	cerr := <-connected
	if err != nil {
		return err // the network ends without the first process
	}
	return cerr
}

// join starts a guest of another user in the sandbox.
func (s *service) join(ctx context.Context, user string) (box.Exec, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox is closed")}
	}
	if s.init.over() {
		s.mu.Unlock()
		return nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox has ended")}
	}
	mode := "enter"
	if s.config.UserNamespace {
		mode = "enter-user"
	}
	p, err := s.launchIn(ctx, mode)
	if err == nil {
		s.joined = append(slices.DeleteFunc(s.joined, (*process).over), p)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c := s.config
	c.User, c.Root, c.Held, c.Prohibited = user, nil, false, nil
	if err := s.configure(ctx, p, c); err != nil {
		if _, known := errors.AsType[*fumehood.Error](err); !known && s.ending(ctx) {
			err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: err}
		}
		return nil, errors.Join(err, p.kill())
	}
	return joined{p}, nil
}

// launchIn starts what brings a guest into the sandbox. A frozen sandbox would freeze the thread that does it.
func (s *service) launchIn(ctx context.Context, mode string) (*process, error) {
	release, err := s.sb.lockFreezer(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	switch {
	case s.frozen.Load() || s.sb.Kept() && s.cgroup.frozen():
		return nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the sandbox is paused")}
	case s.oci != nil:
		return s.supervise(ctx, setup.Launch{}, "exec", "--process", filepath.Join(s.sb.folder, processFile))
	}
	return launch(s.sb.guest, s.cgroup, s.config.Capabilities, &unix.SysProcAttr{}, mode, nil, s.init.pidfd)
}

// ending reports whether the first process has ended, or ends soon.
func (s *service) ending(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), box.DeathWait)
	defer cancel()
	_, ended := s.Units[0].Until(ctx, func(now box.State) bool { return !now.Lives })
	return ended
}

// freeze suspends all processes, or resumes them.
func (s *service) freeze(ctx context.Context, state cgroups.FreezerState) error {
	if !s.cgroup.has("freezer") {
		return noFreezer()
	}
	release, err := s.sb.lockFreezer(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = s.cgroup.Freeze(state)
	// With version 1, a group whose processes start others, or do not get a processor, is not frozen at once.
	for until := time.Now().Add(freezeWithin); err != nil && state == cgroups.Frozen && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil && time.Now().Before(until); {
		err = s.cgroup.Freeze(state)
	}
	if err != nil {
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
	}
	s.frozen.Store(state == cgroups.Frozen)
	return nil
}

// freezeWithin bounds the attempts to freeze a control group. Each takes 0.2 s if the group does not freeze.
const freezeWithin = 10 * time.Second

// close ends everything in the service and removes its control groups. It may be called again.
func (s *service) close(ctx context.Context) error {
	if s.frozen.Swap(false) {
		_ = s.cgroup.Freeze(cgroups.Thawed) // removing the control group reports what is left
	}
	s.mu.Lock()
	s.closed = true
	all := s.joined
	s.mu.Unlock()
	s.Forwards.Close()
	s.main.End()
	if s.cgroup.has("memory") {
		s.ooms.Store(int64(s.cgroup.ooms()))
	}
	if s.limiter != nil {
		s.limiter.close()
		s.limiter = nil
	}
	var errs []error
	switch { // the end of s.init does not end what the runtime has started
	case s.oci != nil && rootless() && s.init != nil:
		errs = append(errs, s.endRuntime(ctx))
	case s.oci != nil:
		errs = append(errs, removeGroups(ctx, s.sb.folder))
	}
	if s.init != nil {
		errs = append(errs, s.init.kill()) // the kernel kills everything in its PID namespace
	}
	if n := s.network(); n != nil {
		errs = append(errs, n.close())
	}
	s.Guests.Close()
	s.main.Wait()
	for _, p := range all {
		errs = append(errs, p.kill())
	}
	return errors.Join(append(errs, s.cgroup.remove(ctx))...)
}

func (s *service) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// processes returns the processes that this process has started in the service.
func (s *service) processes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.init.over() { // its number may be another process's
		return nil
	}
	all := []int{s.init.pid}
	for _, p := range s.joined {
		if !p.over() {
			all = append(all, p.pid)
		}
	}
	if n := s.network(); n.checkHelper() == nil && n.pid() != 0 {
		all = append(all, n.pid())
	}
	return all
}
