package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/fumehood/fumehood"
)

// service is a fumehood.Service.
type service struct {
	sb   *sandbox
	info fumehood.ServiceInfo
	be   ServiceBackend

	user   string // set by As
	direct bool   // set by ViaEngine

	detached *detached // shared by all users
}

func (s *service) ServiceInfo() fumehood.ServiceInfo {
	info := s.info
	info.User = cmp.Or(s.user, info.User)
	return info
}

func (s *service) Exec(ctx context.Context, cmd fumehood.Cmd) (*fumehood.Result, error) {
	if cmd.StdinPipe {
		return nil, &fumehood.Error{Op: "exec", Service: s.info.Name, Class: fumehood.ErrConfig, Err: errors.New("StdinPipe needs Start")}
	}
	if cmd.Events {
		return nil, &fumehood.Error{Op: "exec", Service: s.info.Name, Class: fumehood.ErrConfig, Err: errors.New("Events needs Start")}
	}
	if err := s.rejectDetach(cmd); err != nil {
		return nil, err
	}
	p, cmd, err := s.handOver(ctx, cmd, cmd.Stdout != nil || cmd.Stderr != nil, nil)
	if err != nil {
		return nil, err
	}
	p.supervise(ctx, cmd)
	return p.result, p.err
}

// rejectDetach rejects a command with Detach set.
func (s *service) rejectDetach(cmd fumehood.Cmd) error {
	if cmd.Detach {
		return &fumehood.Error{Op: "exec", Service: s.info.Name, Class: fumehood.ErrConfig, Err: errors.New("only Start can detach a command")}
	}
	return nil
}

func (s *service) Start(ctx context.Context, cmd fumehood.Cmd) (fumehood.Process, error) {
	var f *feed
	if !cmd.Detach {
		f = newFeed(cmd.Events)
	}
	p, err := s.start(ctx, cmd, f)
	if err != nil {
		return nil, err // not a nil *process in the interface
	}
	return p, nil
}

func (s *service) Stream(ctx context.Context, cmd fumehood.Cmd) iter.Seq2[fumehood.Event, error] {
	return func(yield func(fumehood.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := s.rejectDetach(cmd); err != nil {
			yield(fumehood.Event{}, err)
			return
		}
		f := newFeed(true)
		f.attach()
		p, err := s.start(ctx, cmd, f)
		if err != nil {
			yield(fumehood.Event{}, err)
			return
		}
		p.deliver(yield)
		cancel()
		<-p.done
	}
}

func (s *service) KillAll(ctx context.Context) error {
	const op = "kill all processes"
	if err := s.sb.check(op, s.info.Name); err != nil {
		return err
	}
	be, ok := s.be.(AllKiller)
	if !ok {
		return &fumehood.Error{Op: op, Service: s.info.Name, Class: fumehood.ErrUnsupported, Err: errors.New("this provider cannot find all processes of a sandbox"), Hint: "kill the commands, or close the sandbox"}
	}
	err := s.sb.phase("kill all", func() error { return be.KillAll(ctx) })
	return classify(ctx, err, op, s.info.Name, "")
}

func (s *service) Connection(ctx context.Context) (fumehood.Connection, error) {
	const op = "connect"
	if err := s.sb.check(op, s.info.Name); err != nil {
		return fumehood.Connection{}, err
	}
	c, ok := s.be.(Connector)
	if !ok {
		return fumehood.Connection{}, &fumehood.Error{Op: op, Service: s.info.Name, Class: fumehood.ErrUnsupported, Err: errors.New("this provider does not support connections")}
	}
	conn, err := c.Connection(ctx, s.user)
	return conn, classify(ctx, err, op, s.info.Name, "")
}

func (s *service) Forward(ctx context.Context, p fumehood.Port) (fumehood.Port, error) {
	op := fmt.Sprintf("forward port %d", p.Container)
	if err := s.sb.check(op, s.info.Name); err != nil {
		return fumehood.Port{}, err
	}
	if err := p.Validate(); err != nil {
		return fumehood.Port{}, &fumehood.Error{Op: op, Service: s.info.Name, Class: fumehood.ErrConfig, Err: err}
	}
	f, err := s.forwarder(op)
	if err != nil {
		return fumehood.Port{}, err
	}
	got, err := f.Forward(ctx, p)
	return got, classify(ctx, err, op, s.info.Name, "")
}

func (s *service) Dial(ctx context.Context, port int) (fumehood.Conn, error) {
	op := fmt.Sprintf("connect to port %d", port)
	if err := s.sb.check(op, s.info.Name); err != nil {
		return nil, err
	}
	if port < 1 || port > math.MaxUint16 {
		return nil, &fumehood.Error{Op: op, Service: s.info.Name, Class: fumehood.ErrConfig, Err: errors.New("ports are 1 to 65535")}
	}
	f, err := s.forwarder(op)
	if err != nil {
		return nil, err
	}
	conn, err := f.Dial(ctx, port)
	if err != nil {
		return nil, classify(ctx, err, op, s.info.Name, "")
	}
	return conn, nil
}

// forwarder returns the backend, if its ports can be reached.
func (s *service) forwarder(op string) (Forwarder, error) {
	if f, ok := s.be.(Forwarder); ok {
		return f, nil
	}
	return nil, &fumehood.Error{Op: op, Service: s.info.Name, Class: fumehood.ErrUnsupported, Err: errors.New("this provider cannot forward ports")}
}

// CheckDial returns the ErrUnsupported of Service.Dial if the service's provider can connect to no port, and connects to
// none. It returns nil for services that are not made by New.
func CheckDial(svc fumehood.Service) error {
	if s, ok := svc.(interface {
		forwarder(op string) (Forwarder, error)
	}); ok {
		_, err := s.forwarder("connect to ports")
		return err
	}
	return nil
}

// HasStdin reports whether a command was started with an open standard input, see Cmd.StdinPipe. It returns false for
// processes that are not made by New.
func HasStdin(p fumehood.Process) bool {
	own, ok := p.(*process)
	return ok && own.stdin
}

// abs resolves a path against the service's directory. It does not clean it: "a/.." may differ from "." if a is a
// symbolic link.
func (s *service) abs(path string) string {
	if strings.HasPrefix(path, "/") || s.info.Dir == "" {
		return path
	}
	if path == "" || path == "." {
		return s.info.Dir
	}
	return strings.TrimSuffix(s.info.Dir, "/") + "/" + path
}
