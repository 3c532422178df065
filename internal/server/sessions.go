package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/jsontext"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
)

// openSession is a session of a lease.
type openSession struct {
	*session.Session
	l    *lease
	id   string
	kind session.Kind

	mu        sync.Mutex
	runtimes  map[string]*runtime
	ended     map[string]*api.Runtime // runtimes that were removed: only their descriptions are kept
	snapshots map[int]string          // paths by the numbers of their checkpoints
}

func (o *openSession) describe() *api.Session {
	return &api.Session{ID: o.id, Kind: o.kind, Workspace: o.Workspace()}
}

// end closes the session, and forgets it.
func (o *openSession) end(ctx context.Context) error {
	if err := o.Close(ctx); err != nil {
		return err
	}
	disown(o.l, o.l.sessions, o.id)
	return nil
}

// environment returns the environment of a session, if the client may have it.
func (s *Server) environment(o *api.SessionOptions) (*spec.Environment, error) {
	permit := &s.opts.Permit
	if o.AllowUnsafe && !permit.Unsafe {
		return nil, unauthorizedError(flagUnsafe, "start the server with --allow-unsafe", "allow_unsafe is not allowed")
	}
	if err := permit.checkWorkspace(o.Limits); err != nil {
		return nil, err
	}
	if err := permit.checkPaths(append(slices.Clone(o.AllowRead), o.File, o.Workspace, o.Snapshot, o.AssetDir)); err != nil {
		return nil, err
	}
	var env *spec.Environment
	var err error
	switch {
	case o.Environment != "":
		env, err = spec.Parse(cmp.Or(o.File, "environment"), []byte(o.Environment))
	case o.File != "":
		env, err = spec.Load(o.File)
	default:
		err = bad("a session needs an environment or a file")
	}
	if err != nil {
		return nil, err
	}
	env.AllowRead, env.AllowUnsafe = o.AllowRead, o.AllowUnsafe
	if err := s.serves(env.Type); err != nil {
		return nil, err
	}
	if env.Docker.KeepContainerAfterClean {
		return nil, bad("docker.keep_container_after_clean: a session of a server keeps no container")
	}
	paths := []string{env.Snapshot.ArchiveSaveDir}
	if env.Docker.Build != nil {
		if err := permit.checkBuild(); err != nil {
			return nil, err
		}
		folder, err := env.BuildContext()
		if err != nil {
			return nil, err
		}
		paths = append(paths, folder)
	}
	return env, permit.checkPaths(paths)
}

// serves returns an error if this server has no sandboxes of a file's type.
func (s *Server) serves(fileType string) error {
	if (fileType == spec.TypeLocal) != s.opts.Local {
		return bad("this server has no sandboxes of type %s", fileType)
	}
	return nil
}

// openSession opens a session for a lease.
func (s *Server) openSession(ctx context.Context, l *lease, body *api.SessionOptions) (*openSession, error) {
	return own(l, l.sessions, func() (string, *openSession, error) {
		opts, err := body.Options()
		if err != nil {
			return "", nil, err
		}
		if opts.Environment, err = s.environment(body); err != nil {
			return "", nil, err
		}
		o := &openSession{l: l, kind: opts.Kind, runtimes: map[string]*runtime{}, ended: map[string]*api.Runtime{}, snapshots: map[int]string{}}
		opts.Provider, err = s.providerFor(ctx, l, func() string { return o.Workspace() })
		if err != nil {
			return "", nil, err
		}
		opts.Logger, opts.Dir = s.opts.Logger, s.opts.sessions
		if o.Session, err = session.Open(ctx, opts); err != nil {
			return "", nil, err
		}
		o.id = filepath.Base(filepath.Dir(o.Workspace()))
		return o.id, o, nil
	})
}

// Sessioned is the input of requests about a session.
type Sessioned struct {
	Leased
	Session string `path:"session" maxLength:"100" doc:"the session's id"`
}

func (i Sessioned) find(_ context.Context, l *lease) (*openSession, error) {
	return lookup(&l.mu, l.sessions, "session", i.Session)
}

// Runs is the input of requests about a runtime.
type Runs struct {
	Sessioned
	Runtime string `path:"runtime" maxLength:"100" doc:"the runtime's id"`
}

func (i Runs) find(ctx context.Context, l *lease) (*runtime, error) {
	o, err := i.Sessioned.find(ctx, l)
	if err != nil {
		return nil, err
	}
	r, ended, err := o.runtime(i.Runtime)
	if ended != nil {
		err = &fumehood.Error{Op: "find runtime " + i.Runtime, Class: fumehood.ErrUnavailable, Err: noSandbox{errors.New("it was removed")}}
	}
	return r, err
}

// AnyRuntime is the input of requests about a runtime that may have been removed.
type AnyRuntime struct {
	Sessioned
	Runtime string `path:"runtime" maxLength:"100" doc:"the runtime's id"`
}

// runtime returns a runtime by its id, or the description of one that was removed.
func (o *openSession) runtime(id string) (r *runtime, ended *api.Runtime, err error) {
	if ended, _ = lookup(&o.mu, o.ended, "runtime", id); ended != nil {
		return nil, ended, nil
	}
	r, err = lookup(&o.mu, o.runtimes, "runtime", id)
	return r, nil, err
}

// runtime is a container of a session.
type runtime struct {
	*session.Runtime
	session *openSession
}

func (r *runtime) describe() *api.Runtime {
	d := &api.Runtime{ID: r.Name(), Service: r.Service().ServiceInfo(), Reason: r.session.l.s.providerReason()}
	if code, ok := r.Poll(); ok {
		d.ExitCode = &code
	}
	return d
}

func (r *runtime) end(ctx context.Context) error { return r.remove(r.Kill(ctx)) }

// remove forgets the runtime, but for its description, unless its end failed.
func (r *runtime) remove(err error) error {
	if err != nil {
		return err
	}
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	r.session.ended[r.Name()] = r.describe()
	delete(r.session.runtimes, r.Name())
	return nil
}

type executeInput struct {
	Runs
	Once
	Body api.Execute
}

// registerSessions adds the operations of package session.
func (s *Server) registerSessions() {
	const all, one = "/v1/sessions", "/v1/sessions/{session}"
	register(s, op{http.MethodPost, all, "open-session", "Open a session: copy a workspace", "Sessions"}, withLease(func(ctx context.Context, l *lease, in *struct {
		Keyed
		Body api.SessionOptions
	},
	) (*output[*api.Session], error) {
		return startOnce(ctx, l, in.Key, in.RawBody, func(ctx context.Context) (*openSession, error) {
			return s.openSession(ctx, l, &in.Body)
		})
	}))
	type sessionList struct {
		Sessions []*api.Session `json:"sessions"`
	}
	register(s, op{http.MethodGet, all, "list-sessions", "List the lease's sessions", "Sessions"}, withLease(func(_ context.Context, l *lease, _ *Leased) (*output[sessionList], error) {
		return &output[sessionList]{sessionList{list(l, l.sessions)}}, nil
	}))
	register(s, op{http.MethodDelete, one, "close-session", "Close a session, with its runtimes", "Sessions"}, ending[Sessioned]())
	register(s, op{http.MethodPost, one + "/reset", "reset-session", "Restore the workspace from the last checkpoint, or from the start", "Sessions"}, on(func(ctx context.Context, _ *lease, o *openSession, _ *struct {
		Sessioned
		Body struct{}
	},
	) (*struct{}, error) {
		return nil, o.Reset(ctx)
	}))
	register(s, op{http.MethodPost, one + "/checkpoints", "finish-checkpoint", "Save the workspace", "Sessions"}, on(func(ctx context.Context, l *lease, o *openSession, in *struct {
		Sessioned
		Once
		Body struct{}
	},
	) (*output[*api.Checkpoint], error) {
		return once(ctx, l, in.Key, in.RawBody, func(ctx context.Context, _ *call) (*api.Checkpoint, error) {
			c, err := o.FinishCheckpoint(ctx)
			if err != nil {
				return nil, err
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.snapshots[c.Number] = c.Snapshot
			return api.CheckpointOf(c), nil
		})
	}))
	registerStream(s, op{http.MethodGet, one + "/checkpoints/{number}/snapshot", "read-snapshot", "Read the snapshot of a checkpoint", "Sessions"}, typeBytes, nil, on(func(_ context.Context, _ *lease, o *openSession, in *struct {
		Sessioned
		Number int `path:"number" minimum:"1"`
	},
	) (*huma.StreamResponse, error) {
		o.mu.Lock()
		path := o.snapshots[in.Number]
		o.mu.Unlock()
		if path == "" {
			return nil, &fumehood.Error{Op: "read snapshot", Class: fumehood.ErrUnavailable, Err: errors.New("the session has no such checkpoint")}
		}
		file, err := os.Open(path)
		return download(typeBytes, file, -1, err)
	}))
	type globs struct {
		Globs []api.Text `json:"globs" minItems:"1"`
	}
	type otherFile struct {
		Path    api.Text `json:"path"`
		Content []byte   `json:"content" doc:"in base64"`
	}
	type files struct {
		Files  map[string][]byte `json:"files" doc:"contents in base64, by their paths in the workspace"`
		Others []otherFile       `json:"others,omitempty" doc:"those whose paths are not UTF-8"`
	}
	register(s, op{http.MethodPost, one + "/files", "read-workspace", "Read the files of the workspace that match any of the globs", "Sessions"}, on(func(ctx context.Context, _ *lease, o *openSession, in *struct {
		Sessioned
		Body globs
	},
	) (*output[files], error) {
		found, err := o.ReadFiles(ctx, jsontext.Strings(in.Body.Globs)...)
		all := files{Files: found}
		for _, path := range slices.Sorted(maps.Keys(found)) {
			if !utf8.ValidString(path) {
				all.Others = append(all.Others, otherFile{api.Text(path), found[path]})
				delete(found, path)
			}
		}
		return &output[files]{all}, err
	}))
	type value struct {
		Value any `json:"value"`
	}
	register(s, op{http.MethodPost, one + "/resolve", "resolve-assets", "Replace {{static:NAME}} in all texts of a value by the paths of assets", "Sessions"}, on(func(_ context.Context, _ *lease, o *openSession, in *struct {
		Sessioned
		Body value
	},
	) (*output[value], error) {
		v, err := o.Resolve(in.Body.Value)
		return &output[value]{value{v}}, err
	}))
	s.registerRuntimes(one + "/runtimes")
}

type spawnInput struct {
	Sessioned
	Once
	Body api.SpawnOptions
}

func (s *Server) spawn(ctx context.Context, l *lease, o *openSession, in *spawnInput) (*output[*api.Runtime], error) {
	opts, err := in.Body.Options()
	if err != nil {
		return nil, err
	}
	for _, m := range in.Body.Mounts {
		if !filepath.IsAbs(m.Host) {
			continue // in the workspace
		}
		if err := s.opts.Permit.checkPaths([]string{m.Host}, o.Workspace()); err != nil {
			return nil, err
		}
	}
	return startOnce(ctx, l, in.Key, in.RawBody, func(ctx context.Context) (*runtime, error) {
		spawned, err := o.Spawn(ctx, opts)
		if err != nil {
			return nil, err
		}
		r := &runtime{spawned, o}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.runtimes[r.Name()] = r
		return r, nil
	})
}

func (s *Server) registerRuntimes(all string) {
	one := all + "/{runtime}"
	register(s, op{http.MethodPost, all, "spawn-runtime", "Start a container over the workspace, which runs one command at a time", "Sessions"}, on(s.spawn))
	register(s, op{http.MethodGet, one, "poll-runtime", "Describe a runtime, also one that was removed", "Sessions"}, on(func(_ context.Context, _ *lease, o *openSession, in *AnyRuntime) (*output[*api.Runtime], error) {
		r, ended, err := o.runtime(in.Runtime)
		if r != nil {
			ended = r.describe()
		}
		return &output[*api.Runtime]{ended}, err
	}))
	register(s, op{http.MethodDelete, one, "end-runtime", "Kill the runtime's command and remove its container", "Sessions"}, on(func(ctx context.Context, _ *lease, o *openSession, in *struct {
		AnyRuntime
		Kill bool `query:"kill" doc:"do not download an uploaded workspace first"`
	},
	) (*struct{}, error) {
		r, _, err := o.runtime(in.Runtime)
		switch {
		case r == nil:
			return nil, err
		case in.Kill:
			return nil, r.end(ctx)
		}
		return nil, r.remove(r.Cleanup(ctx))
	}))
	register(s, op{http.MethodPost, one + "/execute", "execute-command", "Run a command after the setup, in its shell, to its end", "Sessions"}, on(func(ctx context.Context, l *lease, r *runtime, in *executeInput) (*output[*api.SessionResult], error) {
		if err := checkCaps(in.Body.StdoutCap, in.Body.StderrCap); err != nil {
			return nil, err
		}
		return once(ctx, l, in.Key, in.RawBody, func(ctx context.Context, _ *call) (*api.SessionResult, error) {
			leave, err := s.enterCommand()
			if err != nil {
				return nil, err
			}
			defer leave()
			res, err := r.Execute(ctx, in.Body.Options())
			if err != nil {
				return nil, err
			}
			return api.SessionResultOf(res), nil
		})
	}))
	registerStream(s, op{http.MethodPost, one + "/stream", "stream-command", "Run a command, and follow its output to its end. It is killed if the connection breaks", "Sessions"}, typeLines, api.SessionEvent{}, on(func(ctx context.Context, l *lease, r *runtime, in *struct {
		Runs
		Body api.Execute
	},
	) (*huma.StreamResponse, error) {
		if err := checkCaps(in.Body.StdoutCap, in.Body.StderrCap); err != nil {
			return nil, err
		}
		leave, err := s.enterCommand()
		if err != nil {
			return nil, err
		}
		return follow(ctx, l.life, api.SessionEvent{Type: api.EventHeartbeat}, func(ctx context.Context, send func(any)) {
			defer leave()
			for ev, err := range r.Stream(ctx, in.Body.Options()) {
				send(sessionEvent(ev, err))
			}
		}), nil
	}))
}

// sessionEvent returns the JSON form of an event.
func sessionEvent(ev session.Event, err error) api.SessionEvent {
	switch {
	case err != nil:
		return api.SessionEvent{Type: api.EventError, Error: new(errorOf(err))}
	case ev.Result != nil:
		return api.SessionEvent{Type: api.EventEnd, Result: api.SessionResultOf(ev.Result)}
	}
	return api.SessionEvent{Type: api.EventOutput, Phase: ev.Phase, Stream: ev.Stream.String(), Data: ev.Data}
}
