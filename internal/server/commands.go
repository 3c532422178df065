package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// enter adds one to a number, unless that is at its limit.
func enter(n *atomic.Int64, most int) bool {
	for {
		was := n.Load()
		if was >= int64(most) {
			return false
		}
		if n.CompareAndSwap(was, was+1) {
			return true
		}
	}
}

// enterCommand counts a command that is about to run. leave must be called at its end.
func (s *Server) enterCommand() (leave func(), err error) {
	if !enter(&s.commands, s.opts.Limits.Commands) {
		const hint = "run fewer at a time, or start the server with a higher --max-commands"
		return nil, limitError("run command", "max-commands", hint, "%d commands are running", s.opts.Limits.Commands)
	}
	return func() { s.commands.Add(-1) }, nil
}

type commandInput struct {
	At
	Once
	Service string `query:"service" doc:"a service of the sandbox; empty means the default one"`
	User    string `query:"user" doc:"user of the service, unless the command names one"`
	Body    api.Cmd
}

// command returns the command of a request, and the service that runs it.
func (i *commandInput) command(h *held) (fumehood.Service, fumehood.Cmd, error) {
	cmd := i.Body.Command()
	if len(i.Body.Stdin) > 0 {
		cmd.Stdin = bytes.NewReader(i.Body.Stdin)
	}
	if err := checkCaps(cmd.StdoutCap, cmd.StderrCap); err != nil {
		return nil, cmd, err
	}
	svc, err := h.service(i.Service, i.User)
	return svc, cmd, err
}

func (s *Server) runCommand(ctx context.Context, l *lease, h *held, i *commandInput) (*output[*fumehood.Result], error) {
	if i.Body.Detach || i.Body.StdinPipe || i.Body.Events {
		return nil, bad("detach, stdin_pipe and events are for commands that are started")
	}
	svc, cmd, err := i.command(h)
	if err != nil {
		return nil, err
	}
	return once(ctx, l, i.Key, i.RawBody, func(ctx context.Context, _ *call) (*fumehood.Result, error) {
		leave, err := s.enterCommand()
		if err != nil {
			return nil, err
		}
		defer leave()
		done, err := h.use() // also when the request's connection has broken
		if err != nil {
			return nil, err
		}
		defer done()
		return svc.Exec(ctx, cmd)
	})
}

func (s *Server) startCommand(ctx context.Context, l *lease, h *held, i *commandInput) (*output[*api.Process], error) {
	svc, cmd, err := i.command(h)
	if err != nil {
		return nil, err
	}
	expected := cmd.Events
	cmd.Events = cmd.Events || !cmd.Detach // by the stream, which the client's readers follow
	return startOnce(ctx, l, i.Key, i.RawBody, func(context.Context) (*process, error) {
		leave, err := s.enterCommand()
		if err != nil {
			return nil, err
		}
		done, err := h.use()
		started := false
		defer func() {
			if !started {
				leave()
				done()
			}
		}()
		if err != nil {
			return nil, err
		}
		proc, err := svc.Start(l.life, cmd) //nolint:contextcheck // it outlives the request
		if err != nil {
			return nil, err
		}
		started = true
		out := newStream(proc, s.opts.grace, expected) // a client that lost its connection may come back
		out.kept = [3]bool{fumehood.Stdout: cmd.StdoutCap >= 0, fumehood.Stderr: cmd.StderrCap >= 0}
		go func() {
			defer leave()
			defer done()
			out.pump(s.life, cmd.Detach)
		}()
		return h.add(svc.ServiceInfo().Name, proc, out), nil
	})
}

// Of is the input of requests about a command.
type Of struct {
	At
	Process string `path:"process" maxLength:"40" doc:"the command's id"`
}

func (o Of) find(ctx context.Context, l *lease) (*process, error) {
	h, err := o.At.find(ctx, l)
	if err != nil {
		return nil, err
	}
	return h.process(o.Process)
}

type followInput struct {
	Of
	Stdout int64 `query:"stdout" minimum:"0" doc:"offset in standard output"`
	Stderr int64 `query:"stderr" minimum:"0" doc:"offset in standard error"`
	Wait   bool  `query:"wait" doc:"wait for a reader that reads nothing for as long as its lease is held, instead of breaking the connection after 30 s"`
}

type listInput struct {
	Named
	Refresh bool `query:"refresh" doc:"look up the detached commands of a kept sandbox that other processes have started, and those that were forgotten"`
}

type processList struct {
	Processes []*api.Process `json:"processes"`
}

func (s *Server) registerCommands() {
	const box, one = "/v1/sandboxes/{sandbox}", "/v1/sandboxes/{sandbox}/processes/{process}"
	register(s, op{http.MethodPost, box + "/run", "run-command", "Run a command to its end, at most once with a key", "Commands"}, on(s.runCommand))
	register(s, op{http.MethodPost, box + "/processes", "start-command", "Start a command. It is killed when the lease ends, unless it is detached", "Commands"}, on(s.startCommand))
	register(s, op{http.MethodPost, box + "/kill-all", "kill-all", "Kill the processes of all commands of a service, with what ended commands left, and return when they are gone", "Commands"}, on(func(ctx context.Context, _ *lease, svc fumehood.Service, _ *struct {
		In
		Body struct{}
	},
	) (*struct{}, error) {
		return nil, svc.KillAll(ctx)
	}))
	register(s, op{http.MethodGet, box + "/processes", "list-commands", "List the started commands of a service", "Commands"}, on(func(ctx context.Context, _ *lease, h *held, i *listInput) (*output[processList], error) {
		svc, err := h.service(i.Service, "")
		if err == nil && i.Refresh {
			err = h.join(ctx, svc)
		}
		if err != nil {
			return nil, err
		}
		return &output[processList]{processList{h.list(svc.ServiceInfo().Name)}}, nil
	}))
	register(s, op{http.MethodGet, one, "get-command", "Describe a command", "Commands"}, describing[Of]())
	register(s, op{http.MethodGet, one + "/result", "wait-command", "Wait for a command's end", "Commands"}, on(func(ctx context.Context, _ *lease, p *process, _ *Of) (*output[*fumehood.Result], error) {
		res, err := p.Wait(ctx)
		return &output[*fumehood.Result]{res}, err
	}))
	registerStream(s, op{http.MethodGet, one + "/events", "follow-command", "Follow a command's output from offsets on, and its end. Each line is an event. A slow reader makes the command wait", "Commands"}, typeLines, api.Event{}, on(func(ctx context.Context, l *lease, p *process, i *followInput) (*huma.StreamResponse, error) {
		if i.Wait {
			waitForReader(ctx, l.life)
		}
		return follow(ctx, ctx, api.Event{Type: api.EventHeartbeat}, func(ctx context.Context, send func(any)) {
			p.output.send(ctx, map[fumehood.Stream]int64{fumehood.Stdout: i.Stdout, fumehood.Stderr: i.Stderr}, send)
		}), nil
	}))
	register(s, op{http.MethodPost, one + "/stdin", "write-stdin", "Write the request's body to a command's standard input", "Commands"}, on(func(_ context.Context, _ *lease, p *process, i *struct {
		Of
		RawBody []byte `contentType:"application/octet-stream"`
	},
	) (*struct{}, error) {
		_, err := p.Write(i.RawBody)
		return nil, err
	}))
	register(s, op{http.MethodDelete, one + "/stdin", "close-stdin", "Close a command's standard input", "Commands"}, on(func(_ context.Context, _ *lease, p *process, _ *Of) (*struct{}, error) {
		return nil, p.CloseStdin()
	}))
	register(s, op{http.MethodPost, one + "/signal", "signal-command", "Send a signal to a command", "Commands"}, on(func(ctx context.Context, _ *lease, p *process, i *struct {
		Of
		Body struct {
			Signal int `json:"signal" minimum:"1" maximum:"64" doc:"Linux number"`
		}
	},
	) (*struct{}, error) {
		return nil, p.Signal(ctx, i.Body.Signal)
	}))
	register(s, op{http.MethodPost, one + "/resize", "resize-terminal", "Set the size of a command's terminal", "Commands"}, on(func(ctx context.Context, _ *lease, p *process, i *struct {
		Of
		Body struct {
			Rows uint16 `json:"rows" maximum:"65535"`
			Cols uint16 `json:"cols" maximum:"65535"`
		}
	},
	) (*struct{}, error) {
		return nil, p.Resize(ctx, i.Body.Rows, i.Body.Cols)
	}))
	register(s, op{http.MethodPost, one + "/kill", "kill-command", "Kill a command with all its descendants", "Commands"}, on(func(ctx context.Context, _ *lease, p *process, _ *struct {
		Of
		Body struct{}
	},
	) (*struct{}, error) {
		return nil, p.Kill(ctx)
	}))
	register(s, op{http.MethodDelete, one, "forget-command", "Forget an ended command", "Commands"}, on(func(ctx context.Context, _ *lease, p *process, _ *Of) (*struct{}, error) {
		if !p.Info().Ended {
			return nil, &fumehood.Error{Op: "forget command", Class: fumehood.ErrConfig, Err: errors.New("it is running"), Hint: "kill it first"}
		}
		if err := p.Forget(ctx); err != nil { // it does nothing for one that is not detached
			return nil, err
		}
		p.sandbox.mu.Lock()
		defer p.sandbox.mu.Unlock()
		p.sandbox.forget(p)
		return nil, nil
	}))
}
