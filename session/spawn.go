package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/envimage"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/rootpath"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

// SpawnOptions override the spec for one runtime. The zero value uses the spec as it is.
type SpawnOptions struct {
	Ports  spec.Ports        // added to the spec's; see spec.MergePorts
	Mounts spec.Mounts       // added to the spec's; see spec.VolumeLayers
	Env    map[string]string // takes precedence over the spec's
	Image  string            // empty means the spec's, which is built if needed; see Spawn
	User   string            // empty means the spec's, with its defaults for agents and evaluations
	// Setup is a setup command that runs after those of the spec.
	Setup string
	// DisableSetup runs commands with /bin/sh -c and without any setup.
	DisableSetup bool
}

// Spawn starts a runtime: a container that runs one command at a time. If it fails, nothing is left behind.
//
// If the spec has docker.build, the first spawn that names no image builds it, unless an image of the same inputs
// exists. Later spawns of the session run the same image, even if its tags have moved. If the provider
// cannot build images, that is an ErrUnsupported. Without docker.build the image is docker.image.
func (s *Session) Spawn(ctx context.Context, opts SpawnOptions) (*Runtime, error) {
	return s.spawn(ctx, "spawn runtime", opts, !s.local() && s.env.Docker.KeepContainerAfterClean)
}

// Exec runs one command in a new runtime, and removes the runtime afterwards, even if the spec keeps containers.
func (s *Session) Exec(ctx context.Context, spawn SpawnOptions, opts ExecuteOptions) (*Result, error) {
	r, err := s.spawn(ctx, "exec", spawn, false)
	if err != nil {
		return nil, err
	}
	res, err := r.Execute(ctx, opts)
	switch cerr := r.Cleanup(ctx); {
	case err != nil && cerr != nil:
		return nil, opError("exec", errors.Join(err, cerr))
	case cerr != nil:
		return nil, cerr
	}
	return res, err
}

func (s *Session) spawn(ctx context.Context, op string, opts SpawnOptions, keep bool) (*Runtime, error) {
	if err := s.checkOpen(op); err != nil {
		return nil, err
	}
	if opts.Image == "" {
		var err error
		if opts.Image, err = s.builtImage(ctx); err != nil {
			return nil, opError(op, err)
		}
	}
	s.saving.Lock() // do not mount files that are being restored or removed
	defer s.saving.Unlock()
	sandboxSpec, err := s.specOf(opts)
	if err != nil {
		return nil, opError(op, err)
	}
	s.mu.Lock()
	s.spawned++
	number := strconv.Itoa(s.spawned)
	s.mu.Unlock()
	sandboxSpec.Name, sandboxSpec.Keep, sandboxSpec.Journal, sandboxSpec.Logger = s.name+"-"+number, keep, s.opts.Journal, s.opts.Logger
	copies, err := s.copyMounts(ctx, number, sandboxSpec.Mounts)
	if err != nil {
		return nil, opError(op, errors.Join(err, s.helper().removeCopies(ctx, copies)))
	}
	r, err := s.start(ctx, sandboxSpec)
	if err != nil {
		return nil, opError(op, errors.Join(err, s.helper().removeCopies(ctx, copies)))
	}
	opts.Env = maps.Clone(opts.Env) // of the caller
	r.opts, r.copies = opts, copies
	switch err = s.noteImage(r); {
	case err != nil:
	case s.uploads():
		err = errors.Join(r.send(ctx, r.sb), r.sendAssets(ctx))
	default:
		err = s.own(ctx, r)
	}
	s.mu.Lock()
	if err == nil && s.closed {
		err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the session is closed")}
	}
	if err == nil {
		s.runtimes = append(s.runtimes, r)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, opError(op, errors.Join(err, r.end(ctx, false, true)))
	}
	return r, nil
}

// builtImage returns the id of the image of docker.build, which is built once, or "" if the spec has no
// docker.build.
func (s *Session) builtImage(ctx context.Context) (string, error) {
	if s.local() || s.env.Docker.Build == nil {
		return "", nil
	}
	builder, ok := s.opts.Provider.(provider.ImageBuilder)
	if !ok {
		return "", &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s cannot build images, but the spec has docker.build", s.opts.Provider.Name()),
			Hint: "name the image at spawn",
		}
	}
	s.building.Lock()
	defer s.building.Unlock()
	if s.built == "" {
		built, err := envimage.Build(ctx, builder, s.opts.Environment, func(tag, step string) { s.log.Info("building " + tag + ": " + step) })
		if err != nil {
			return "", err
		}
		s.built = built.ID
	}
	return s.built, nil
}

// start starts a runtime's sandbox. If the workspace is copied into it, its main process runs as root: the folder
// that the Engine creates belongs to root, and only the first user of a container has root's rights.
func (s *Session) start(ctx context.Context, sandboxSpec fumehood.Spec) (*Runtime, error) {
	user := sandboxSpec.User
	if s.uploads() && !isRoot(user) {
		sandboxSpec.User = "0:0"
	}
	sb, err := s.opts.Provider.Start(ctx, sandboxSpec)
	if err != nil {
		return nil, err
	}
	if own := sb.ServiceInfo().User; s.uploads() && user == "" && !isRoot(own) { // the image defines the user
		if err := sb.Close(ctx); err != nil {
			return nil, err
		}
		user, sandboxSpec.User = own, "0:0"
		if sb, err = s.opts.Provider.Start(ctx, sandboxSpec); err != nil {
			return nil, err
		}
	}
	r := &Runtime{s: s, sb: sb, svc: sb, keep: sandboxSpec.Keep}
	if s.uploads() && user != "" {
		r.svc = sb.As(user)
	}
	return r, nil
}

func isRoot(user string) bool {
	uid, _, _ := strings.Cut(user, ":")
	return uid == "" || uid == "0" || uid == "root"
}

// specOf returns the spec of a runtime's sandbox.
func (s *Session) specOf(opts SpawnOptions) (fumehood.Spec, error) {
	layers := spec.VolumeLayers{Workspace: s.Workspace(), Spawn: opts.Mounts}
	if s.opts.Kind == Evaluation && !s.uploads() {
		layers.AssetDir, layers.Assets = s.opts.AssetDir, s.assets
	}
	if opts.User == "" && !s.local() {
		opts.User = s.user()
	}
	sandboxSpec, notes, err := s.opts.Environment.Sandbox(spec.SandboxOptions{
		Volumes: layers, Ports: opts.Ports, Image: opts.Image, User: opts.User, Env: opts.Env, Host: os.Environ(), GOOS: runtime.GOOS,
	})
	for _, note := range notes {
		s.once(s.log.Warn, note)
	}
	if err != nil {
		return sandboxSpec, err
	}
	for name, id := range s.hostUser() {
		if _, set := sandboxSpec.Env[name]; !set {
			sandboxSpec.Env[name] = id
		}
	}
	return sandboxSpec, nil
}

// hostUser returns the variables by which commands in a container find the user and group to give files to.
func (s *Session) hostUser() map[string]string {
	uid, gid, both := strings.Cut(spec.EvaluationUser("", s.opts.HUID, s.opts.HGID, os.Getuid(), os.Getgid()), ":")
	if s.local() || !both {
		return nil
	}
	return map[string]string{"HUID": uid, "HGID": gid}
}

// user returns the user of commands if the spawn names none.
func (s *Session) user() string {
	if s.opts.Kind == Agent {
		return s.env.Docker.User // or the image's own if empty
	}
	return spec.EvaluationUser(s.env.Docker.User, s.opts.HUID, s.opts.HGID, os.Getuid(), os.Getgid())
}

// own gives the mounted workspace, and copies of parts of it, to the runtime's user, who could otherwise only
// read them. It does nothing if the user is root or already owns them. This machine's user gets access through a
// helper.
func (s *Session) own(ctx context.Context, r *Runtime) error {
	user := r.svc.ServiceInfo().User
	uid, _, _ := strings.Cut(user, ":")
	if s.local() || isRoot(user) {
		return nil
	}
	own := uid == strconv.Itoa(os.Getuid())
	var dirs []string
	if s.owner != user && (s.owner != "" || !own) {
		dirs = append(dirs, helperWork)
	}
	if r.copies != "" && !own {
		dirs = append(dirs, path.Join(helperDir, r.copies))
	}
	if len(dirs) == 0 {
		return nil
	}
	err := s.helper().with(ctx, func(svc fumehood.Service) error {
		for _, dir := range dirs {
			if err := chown(ctx, svc, dir, user); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		s.owner = user
	}
	return err
}

// chown gives a folder and everything in it to a user.
func chown(ctx context.Context, root fumehood.Service, dir, user string) error {
	if err := root.ChownAll(ctx, dir, user); err != nil {
		return fmt.Errorf("give the workspace to %s: %w", user, err)
	}
	return nil
}

// send copies the workspace into the container as root or the user of the commands, to whom it then belongs.
func (r *Runtime) send(ctx context.Context, as fumehood.Service) error {
	dir := r.sb.ServiceInfo().Dir
	err := as.Mkdir(ctx, dir, fumehood.MkdirOptions{Parents: true})
	if err != nil {
		return fmt.Errorf("copy the workspace into the container: %w", err)
	}
	pack := r.s.pack(ctx, r.s.Workspace(), workspace.CreateOptions{})
	err = archive.Pipe(pack, archive.Whole(func(stream io.Reader) error { return as.Upload(ctx, dir, stream) }))
	if user := r.svc.ServiceInfo().User; err == nil && isRoot(as.ServiceInfo().User) && !isRoot(user) {
		err = chown(ctx, r.sb, dir, user)
	}
	return err
}

// fetch downloads the workspace from the container that has the newest copy, which is that of the last spawned
// runtime. If there is no runtime, or the workspace is mounted, it does nothing.
func (s *Session) fetch(ctx context.Context) error {
	s.mu.Lock()
	var newest *Runtime
	if n := len(s.runtimes); n > 0 {
		newest = s.runtimes[n-1]
	}
	s.mu.Unlock()
	if newest == nil || !s.uploads() {
		return nil
	}
	return newest.fetch(ctx)
}

func (r *Runtime) fetch(ctx context.Context) error {
	fetched := r.s.Workspace() + ".fetched"
	err := errors.Join(owner.RemoveFolder(fetched), r.download(ctx, fetched))
	if err == nil {
		err = owner.RemoveFolder(r.s.Workspace())
	}
	if err == nil {
		return os.Rename(fetched, r.s.Workspace())
	}
	return errors.Join(err, owner.RemoveFolder(fetched))
}

// download copies the workspace from the container to dir, which must not exist. The programs of another user than root may put
// links in the place of files and folders meanwhile. Then root reads only where none can lead it out of the workspace.
func (r *Runtime) download(ctx context.Context, dir string) error {
	from := r.sb.ServiceInfo().Dir
	if isRoot(r.svc.ServiceInfo().User) {
		return r.s.download(ctx, r.sb, from, dir)
	}
	if rootpath.Fixed(ctx, r.sb, path.Dir(from)) {
		pack := func(w io.Writer) error { return downloadFolder(ctx, w, r.sb, from) }
		return archive.Pipe(pack, archive.Whole(func(stream io.Reader) error { return r.s.unpack(ctx, stream, dir) }))
	}
	return r.s.download(ctx, r.svc, from, dir)
}

// refresh updates the running containers after the workspace was restored. A container with a copy of the
// workspace gets a new copy; a mounted workspace gets its owner again.
func (s *Session) refresh(ctx context.Context) error {
	s.mu.Lock()
	runtimes := slices.Clone(s.runtimes)
	s.mu.Unlock()
	s.owner = ""
	for _, r := range runtimes {
		if !s.uploads() {
			if err := s.own(ctx, r); err != nil {
				return err
			}
			continue
		}
		dir, as := r.sb.ServiceInfo().Dir, r.svc
		if rootpath.Fixed(ctx, r.sb, path.Dir(dir)) { // otherwise the user's programs may have put a link there
			as = r.sb
		}
		if err := clearDir(ctx, as, dir); err != nil {
			return err
		}
		if err := r.send(ctx, as); err != nil {
			return err
		}
	}
	return nil
}
