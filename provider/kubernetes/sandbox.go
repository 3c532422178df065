package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// sandbox is the backend of one sandbox.
type sandbox struct {
	box.Sandbox
	p        *Provider
	members  []member    // nil if another process has started it
	pod      *corev1.Pod // as it was created or found; nil before that
	own      *watching   // of a sandbox that another process has started; nil for the provider's
	programs []*box.Program
}

var (
	_ box.Body         = (*sandbox)(nil)
	_ provider.Stopper = (*sandbox)(nil)
)

// Prepare determines the services. The nodes pull the images.
func (sb *sandbox) Prepare(ctx context.Context) (err error) {
	sb.members, err = sb.p.members(ctx, sb.Spec, sb.Rec)
	return err
}

// Admit waits for a place among the sandboxes that start, and those that exist.
func (sb *sandbox) Admit(ctx context.Context) (started, left func(), err error) {
	if err := sb.p.running.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	if err := sb.p.starting.Acquire(ctx, 1); err != nil {
		sb.p.running.Release(1)
		return nil, nil, err
	}
	return func() { sb.p.starting.Release(1) }, func() { sb.p.running.Release(1) }, nil
}

// Make creates the Pod, with its marks, and starts the services in it.
func (sb *sandbox) Make(ctx context.Context) (err error) {
	end := sb.Rec.Phase("create")
	marks := sb.Marks()
	marks[owner.LabelOwner] = sb.p.self.String()
	marks[owner.LabelLease] = time.Now().Add(sb.p.opts.Lease).UTC().Format(time.RFC3339)
	pod, err := sb.p.pod(sb.Spec, sb.members, marks)
	if err == nil {
		sb.pod, err = sb.p.make(ctx, pod)
	}
	end(err)
	if err != nil {
		return err
	}
	w := sb.p.watching(ctx)
	w.record(sb.pod)
	for _, m := range sb.members {
		info := fumehood.ServiceInfo{Name: m.Name, Image: m.image, Dir: m.Spec.Dir, User: m.Spec.User}
		_, term := m.Spec.Env["TERM"]
		s := sb.add(w, info, m.container, environment(m), term)
		s.Service.Service = m.Service
		var program *box.Program
		if sb.Spec.Compose != nil {
			program = box.NewProgram(sb.p.lives, &sb.Sandbox, s.Service, m.Member, sb.p.opts.Logger) //nolint:contextcheck // it outlives the start
		}
		s.unit().program = program
		sb.programs = append(sb.programs, program)
		s.Service.Service.Forward = m.Spec.Ports
		s.Launch = func(ctx context.Context) error { return sb.launch(ctx, s, program) }
	}
	end = sb.Rec.Phase("start")
	err = sb.StartServices(ctx, sb.p.opts.Logger.With("sandbox", sb.Spec.Name))
	end(err)
	if err != nil {
		return err
	}
	for _, program := range sb.programs {
		program.Settle()
	}
	if !sb.Spec.Keep {
		return nil
	}
	return sb.keep(ctx)
}

// guestWithin bounds the first exchange with a guest.
const guestWithin = 60 * time.Second

// service is the backend of a service.
type service struct {
	*box.Service
	sb *sandbox
}

func (s *service) unit() *unit { return s.Units[0].(*unit) }

// Connection returns commands that open a shell, and the forwarded ports.
func (s *service) Connection(ctx context.Context, user string) (fumehood.Connection, error) {
	u := s.unit()
	if err := u.Death(ctx).Err; err != nil {
		return fumehood.Connection{}, err
	}
	c := fumehood.Connection{Container: u.pod, Shell: []string{}, VSCode: []string{}, Ports: append([]fumehood.Port{}, s.Forwards.All()...)}
	switch {
	case s.sb.Kept():
		c.Shell = append(c.Shell, "fumehood", "shell", s.sb.Spec.Name, "--provider", s.sb.p.Name(), "--namespace", s.sb.p.api.namespace)
		if s.Info.Name != s.sb.Services[0].Info.Name {
			c.Shell = append(c.Shell, "--service", s.Info.Name)
		}
		if user != "" {
			c.Shell = append(c.Shell, "--user", user)
		}
	case cmp.Or(user, s.Info.User) == "": // kubectl starts programs as the container's own user
		c.Shell = append(c.Shell, "kubectl", "exec", "-it", "--namespace", s.sb.p.api.namespace, u.pod, "--container", u.container, "--", "sh")
	}
	return c, nil
}

// add adds a service whose guests this process may use from then on.
func (sb *sandbox) add(w *watching, info fumehood.ServiceInfo, container string, args []string, term bool) *service {
	info.Container = sb.pod.Name
	u := &unit{p: sb.p, w: w, pod: sb.pod.Name, uid: sb.pod.UID, container: container, args: args}
	s := &service{&box.Service{Service: compose.Service{Name: info.Name, Serves: true}, Info: info, Units: []box.Unit{u}, Term: term}, sb}
	s.Backend = s
	s.Guests = box.NewGuests(box.GuestConfig{
		Unit: u, Sandbox: sb.Spec.Name, User: info.User, Serves: true, Key: sb.Key, ID: string(sb.pod.UID) + " " + container, Within: guestWithin,
		Ran: &sb.Ran, Log: sb.p.opts.Logger.With("sandbox", sb.Spec.Name),
	})
	s.Forwards = box.NewPorts(s.Guests.Own, sb.p.opts.Logger)
	sb.Services = append(sb.Services, s.Service)
	return s
}

// launch waits until the guest of a service answers, and starts the service's own program.
func (sb *sandbox) launch(ctx context.Context, s *service, program *box.Program) error {
	if err := s.unit().awaitStart(ctx); err != nil {
		return err
	}
	if err := sb.connect(ctx, s); err != nil {
		return err
	}
	return program.Launch(ctx)
}

// connect attaches to the guest of a service.
func (sb *sandbox) connect(ctx context.Context, s *service) (err error) {
	if err := s.Guests.Attach(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, guestWithin, box.Slow(guestWithin))
	defer cancel()
	if err := s.Guests.Ready(ctx); err != nil {
		return err
	}
	// What the main process writes goes into the container's log on the node, so the rest goes by a relay.
	s.Guests.Main().Close()
	if s.Info.Dir == "" { // the image determines it
		s.Info.Dir, err = s.Guests.Dir(ctx)
		return err
	}
	_, err = s.Guests.Own(ctx)
	return err
}

// keptService is what another process needs to know about a service of a kept sandbox.
type keptService struct {
	Name      string   `json:"name"`
	Container string   `json:"container"`
	User      string   `json:"user,omitempty"`
	Dir       string   `json:"dir"`
	Args      []string `json:"args,omitempty"` // see unit
	Program   bool     `json:"program,omitempty"`
	Term      bool     `json:"term,omitempty"`
}

// keep makes a sandbox that has started outlive this process.
func (sb *sandbox) keep(ctx context.Context) error {
	var all []keptService
	for i, s := range sb.Services {
		if err := sb.programs[i].Leave(ctx); err != nil {
			return err
		}
		u := s.Units[0].(*unit)
		all = append(all, keptService{s.Info.Name, u.container, s.Info.User, s.Info.Dir, u.args, sb.programs[i].Runs(), s.Term})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return sb.p.api.patch(ctx, sb.pod.Name, map[string]any{"metadata": map[string]any{
		"uid": sb.pod.UID, "annotations": map[string]string{annotationServices: string(text)},
	}})
}

// leave closes the connections to the services, and ends what this process does for their programs.
func (sb *sandbox) leave() {
	for _, program := range sb.programs {
		program.End()
	}
	sb.Disconnect()
	for _, program := range sb.programs {
		program.Wait()
	}
}

// Remove deletes the Pod.
func (sb *sandbox) Remove(ctx context.Context) error {
	sb.leave()
	if sb.pod == nil {
		return nil
	}
	if err := sb.p.api.deletePod(ctx, sb.pod.Name, sb.pod.UID, atOnce); err != nil {
		return err
	}
	sb.p.watching(ctx).forget(sb.pod.Name)
	return nil
}

// Leave closes the connections to a kept sandbox.
func (sb *sandbox) Leave() {
	sb.leave()
	if sb.own != nil {
		sb.own.end()
	}
}
