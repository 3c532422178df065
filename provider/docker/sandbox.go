package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/compose"
	"github.com/lazaret/lazaret/internal/engine"
)

// sandbox is the backend of one generated project.
type sandbox struct {
	p    *Provider
	spec lazaret.Spec
	id   string // the container's, once it exists

	folder string // of the host, with the sockets for guests; empty where there is none

	guests guests

	mu   sync.Mutex // held while it is being removed
	gone bool

	owning sync.Mutex // held while an owner is being resolved
	owners map[string]engine.FileOwner
}

var (
	_ lazaret.Backend        = (*sandbox)(nil)
	_ lazaret.Stopper        = (*sandbox)(nil)
	_ lazaret.ServiceBackend = (*service)(nil)
	_ lazaret.Connector      = (*service)(nil)
)

const (
	// startTimeout bounds the wait for the Engine's report of a start that it has confirmed.
	startTimeout = 30 * time.Second
	// removeTimeout bounds the removal of one sandbox.
	removeTimeout = 30 * time.Second
)

// labels are those of every object of the sandbox.
func (sb *sandbox) labels() map[string]string {
	l := map[string]string{engine.LabelOwner: sb.p.self.String(), engine.LabelSandbox: sb.spec.Name}
	if sb.spec.Keep {
		l[engine.LabelKept] = "true"
	}
	return l
}

// up creates and starts the project. On an error, what exists carries the labels and is for Close.
func (sb *sandbox) up(ctx context.Context, guest string) error {
	name := compose.ContainerName(sb.spec.Name)
	main := compose.Main{Volume: guest, Serve: sb.serves(), Sockets: sb.makeFolder()}
	err := sb.p.compose.Create(ctx, compose.Generate(sb.spec, main, sb.labels()))
	if errors.Is(err, engine.ErrMount) && main.Sockets != "" { // the daemon does not see this machine's files
		sb.p.noSockets(err)
		if err := sb.removeFolder(); err != nil {
			return err
		}
		main.Sockets = ""
		err = sb.p.compose.Create(ctx, compose.Generate(sb.spec, main, sb.labels()))
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	state, err := sb.p.engine.Inspect(ctx, name)
	if err != nil {
		return err
	}
	if state.Labels[engine.LabelOwner] != sb.p.self.String() || state.Running {
		forgotten := sb.forget() // it is not ours to remove
		taken := &lazaret.Error{Class: lazaret.ErrConfig, Err: fmt.Errorf("there is a sandbox of that name already"), Hint: "choose another name, or remove it with `lazaret cleanup " + sb.spec.Name + "`"}
		return errors.Join(taken, forgotten)
	}
	sb.id = state.ID
	if sb.spec.User == "" {
		sb.spec.User = state.User
	}
	sb.spec.Dir = state.WorkingDir
	if sb.spec.Dir == "" {
		sb.spec.Dir = "/"
	}
	if main.Serve {
		if err := sb.guests.attach(ctx); err != nil {
			return err
		}
	}
	if err := sb.p.engine.StartContainer(ctx, sb.id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if state, ok := sb.p.watch.AwaitStart(ctx, sb.id); !ok {
		if state.Died {
			return &lazaret.Error{Class: lazaret.ErrUnavailable, Err: fmt.Errorf("its main process ended at once with code %d", state.Exit)}
		}
		return &lazaret.Error{Class: lazaret.ErrInfrastructure, Err: fmt.Errorf("the Engine did not report the start within %v", startTimeout)}
	}
	if !main.Serve {
		return nil
	}
	if err := sb.guests.ready(ctx); err != nil {
		return err
	}
	if err := sb.guests.move(ctx, sb.guests.main); err != nil {
		sb.p.noSockets(err)
	}
	return nil
}

// serves reports whether the main process is a guest that serves this process. A kept sandbox's main
// process must outlive this process, and so only idles.
func (sb *sandbox) serves() bool { return sb.p.opts.Transport == TransportGuest && !sb.spec.Keep }

// forget makes Close leave the daemon's objects in place.
func (sb *sandbox) forget() error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.gone = true
	sb.p.release(sb)
	return sb.removeFolder()
}

// Info describes the sandbox.
func (sb *sandbox) Info() lazaret.Info {
	return lazaret.Info{
		Name: sb.spec.Name, Provider: sb.p.Name(),
		Services: []lazaret.ServiceInfo{{
			Name: compose.DefaultService, Container: compose.ContainerName(sb.spec.Name), Image: sb.spec.Image,
			User: sb.spec.User, Dir: path.Clean(sb.spec.Dir),
		}},
	}
}

// Service returns the only service there is.
func (sb *sandbox) Service(string) lazaret.ServiceBackend { return &service{sb} }

// fileOwner is who the engine transport gives the new files of a user to; empty is the service's user.
func (sb *sandbox) fileOwner(ctx context.Context, user string) (engine.FileOwner, error) {
	if user == "" {
		user = sb.spec.User
	}
	sb.owning.Lock()
	defer sb.owning.Unlock()
	if owner, ok := sb.owners[user]; ok {
		return owner, nil
	}
	owner, err := sb.p.engine.FileOwner(ctx, sb.id, user)
	if err != nil {
		return engine.FileOwner{}, err
	}
	if sb.owners == nil {
		sb.owners = map[string]engine.FileOwner{}
	}
	sb.owners[user] = owner
	return owner, nil
}

// Close removes the sandbox's objects, or leaves them where it is a kept one that has started.
func (sb *sandbox) Close(ctx context.Context) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.gone {
		return nil
	}
	sb.guests.close()
	if !sb.spec.Keep || !sb.p.watch.State(sb.id).Started {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		if err := sb.remove(ctx); err != nil {
			return err
		}
	}
	if err := sb.removeFolder(); err != nil {
		return err
	}
	sb.gone = true
	sb.p.release(sb)
	return nil
}

// Stop kills a kept container's main process, and with it all others.
func (sb *sandbox) Stop(ctx context.Context) error {
	if !sb.spec.Keep {
		return &lazaret.Error{Class: lazaret.ErrConfig, Err: errors.New("it is not a kept one"), Hint: "set Keep in its spec"}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	return sb.p.engine.StopContainer(ctx, sb.id)
}

// remove removes what belongs to the sandbox. A generated project that came up has its container and no
// more; of one that did not, everything is looked for.
func (sb *sandbox) remove(ctx context.Context) error {
	if sb.id != "" {
		return sb.p.engine.Remove(ctx, engine.Object{Kind: engine.Container, ID: sb.id, Name: compose.ContainerName(sb.spec.Name)})
	}
	objects, err := sb.p.engine.Objects(ctx, engine.LabelSandbox+"="+sb.spec.Name)
	if err != nil {
		return err
	}
	var errs []error
	engine.SortForRemoval(objects)
	for _, o := range objects {
		if o.Labels[engine.LabelOwner] == sb.p.self.String() {
			errs = append(errs, sb.p.engine.Remove(ctx, o))
		}
	}
	return errors.Join(errs...)
}

// service runs commands and moves files through a guest, or by the Engine's own calls.
type service struct{ sb *sandbox }

// direct reports whether nothing in the sandbox is to help.
func (s *service) direct() bool { return s.sb.p.opts.Transport == TransportEngine }

// Start hands cmd to a guest, or to the Engine.
func (s *service) Start(ctx context.Context, cmd lazaret.Cmd, live bool, out lazaret.Sink) (lazaret.ProcessBackend, error) {
	if s.direct() || cmd.Direct {
		e, err := s.sb.p.engine.Exec(ctx, s.sb.p.watch, s.sb.id, cmd, out)
		if err != nil {
			return nil, err
		}
		return e, nil
	}
	p, err := s.sb.guests.exec(ctx, cmd, live, out)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Connection is a docker exec command line.
func (s *service) Connection(ctx context.Context) (lazaret.Connection, error) {
	name := compose.ContainerName(s.sb.spec.Name)
	shell := []string{"docker", "exec", "-it"}
	if s.sb.spec.User != "" {
		shell = append(shell, "--user", s.sb.spec.User)
	}
	conn := lazaret.Connection{Container: name, Shell: append(shell, name, "sh", "-l")}
	if len(s.sb.spec.Ports) == 0 {
		return conn, nil
	}
	state, err := s.sb.p.engine.Inspect(ctx, s.sb.id)
	if err == nil {
		conn.Ports, err = publishedPorts(s.sb.spec.Ports, state.Ports)
	}
	return conn, err
}

// publishedPorts finds for each port that was asked for the one of the host that it got.
func publishedPorts(asked, got []lazaret.Port) (ports []lazaret.Port, err error) {
	for _, p := range asked {
		i := slices.IndexFunc(got, func(g lazaret.Port) bool {
			return g.Container == p.Container && g.Protocol == cmp.Or(p.Protocol, lazaret.ProtocolTCP) && (p.Host == 0 || g.Host == p.Host) && !slices.Contains(ports, g)
		})
		if i < 0 {
			return nil, &lazaret.Error{Class: lazaret.ErrInfrastructure, Err: fmt.Errorf("the Engine has not published port %d", p.Container)}
		}
		ports = append(ports, got[i])
	}
	return ports, nil
}
