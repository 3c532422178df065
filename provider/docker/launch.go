package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
	"github.com/fumehood/fumehood/internal/wire/client"
)

// launch starts a guest of a user by an exec, and has it kill what another one left that began at since and has died; 0
// where there was none.
//
// In a container of another user, an Engine before 24 starts root without capabilities (moby#45491, for 20.10 and 23.0),
// and with no-new-privileges there is no way to get them back. So such a guest is started once more, with all
// capabilities, of which it keeps those of its container before it does anything else. A daemon that lacks some
// itself, as in a restricted virtual machine, refuses that.
func (g *guests) launch(ctx context.Context, user string, since uint64) (*userGuest, error) {
	u, err := g.launchBy(ctx, g.svc.sb.p.engine.ExecDuplex, user, since)
	if err != nil || !u.swept.Lacks {
		return u, err
	}
	u.guest.Close()
	keep := "--capabilities=" + strconv.FormatUint(g.svc.containers[0].Bounding, 16)
	u, err = g.launchBy(ctx, g.svc.sb.p.engine.ExecPrivileged, user, since, keep)
	switch {
	case engine.LacksCapabilities(err):
		return nil, g.svc.errPowerless()
	case err == nil && u.swept.Lacks:
		u.guest.Close()
		return nil, g.svc.errPowerless()
	}
	return u, err
}

// execer is one of the Engine's ways to start a program.
type execer func(ctx context.Context, w *engine.Watch, container, user string, args ...string) (*engine.ExecStream, error)

func (g *guests) launchBy(ctx context.Context, exec execer, user string, since uint64, args ...string) (*userGuest, error) {
	if err := checkUsers(ctx, g.checkRegular); err != nil {
		return nil, notGuest(err)
	}
	c := g.svc.begin(&userGuest{})
	rw, err := exec(ctx, g.svc.sb.p.watch, g.svc.id, user, append([]string{g.svc.Guest, "serve"}, args...)...)
	if err != nil {
		if ctx.Err() != nil {
			err = cmp.Or(g.trapped(ctx), err)
		}
		return nil, notGuest(g.svc.broken(err))
	}
	u := c.guest
	u.guest, u.exec = client.New(rw), rw
	if err = u.guest.Ready(ctx); err == nil {
		u.swept, err = u.guest.Sweep(ctx, nil, since)
	}
	if err == nil {
		err = g.svc.checkUnended(ctx)
	}
	if err != nil {
		return nil, g.svc.broken(c.failed(ctx, err))
	}
	g.survived(user, u.swept.Survivors)
	return u, nil
}

// maxUsers bounds the files in which the container's runtime looks up a user, in bytes.
const maxUsers = 16 << 20

// checkUsers refuses files of users at which the container's runtime would wait for ever, as at a pipe.
func checkUsers(ctx context.Context, look func(ctx context.Context, file string) error) error {
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		err := look(ctx, file)
		for _, class := range []error{fumehood.ErrNotRegular, fumehood.ErrIsDirectory, fumehood.ErrTooLarge, fumehood.ErrUnsupported} {
			if errors.Is(err, class) {
				return &fumehood.Error{Class: fumehood.ErrUserNotFound, Err: fmt.Errorf("nobody can be looked up in %s: %w", file, err)}
			}
		}
	}
	return nil // what else is wrong with them, the runtime tells
}

// trapped is the error of files of users that what runs in the sandbox has changed since checkUsers has passed them, and changes
// back and forth, perhaps; nil where they are as they should be. It outlives the end of ctx. The Engine is asked only where there is
// no guest to ask: while a runtime waits at a pipe, the Engine does not answer about its container.
func (g *guests) trapped(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deathWait)
	defer cancel()
	look := g.sees
	if !g.hasMain() {
		look = g.checkRegular
	}
	for range 20 {
		if err := checkUsers(ctx, look); err != nil {
			return err
		}
	}
	return nil
}

// hasMain reports whether the service's guest can be asked.
func (g *guests) hasMain() bool { return g.main != nil && !g.main.Lost() }

// checkRegular refuses what is no regular file of at most maxUsers bytes. The service's guest sees what the runtime will see, but
// where links lead through /proc, by whose own each sees its own.
func (g *guests) checkRegular(ctx context.Context, file string) error {
	if !g.hasMain() {
		return g.engineSees(ctx, file)
	}
	for _, part := range []string{path.Dir(file), file} {
		if info, err := g.main.Stat(ctx, part); err == nil && info.Mode&fs.ModeSymlink != 0 {
			if err := g.engineSees(ctx, file); err != nil {
				return err
			}
		}
	}
	err := g.sees(ctx, file)
	if errors.Is(err, fumehood.ErrPermission) { // the runtime may
		return g.engineSees(ctx, file)
	}
	return err
}

// engineSees is checkRegular as the Engine sees the file.
func (g *guests) engineSees(ctx context.Context, file string) error {
	return g.svc.sb.p.engine.CheckRegular(ctx, g.svc.id, file, maxUsers)
}

// sees is checkRegular as the service's guest sees the file.
func (g *guests) sees(ctx context.Context, file string) error {
	r, info, err := g.main.Open(ctx, file, 0, 0)
	if err != nil {
		return err
	}
	if info.Size > maxUsers {
		err = &fumehood.Error{Class: fumehood.ErrTooLarge, Err: fmt.Errorf("it has %d bytes, and %d are the limit", info.Size, maxUsers)}
	}
	return errors.Join(err, r.Close())
}

// broken makes an ErrBroken of what is not there because the service's own program has ended by itself since it was ready.
func (s *service) broken(err error) error {
	if s.Serves || s.sb.p.watch.State(s.id).Alones <= s.alones || !errors.Is(err, fumehood.ErrUnavailable) && !errors.Is(err, fumehood.ErrInfrastructure) {
		return err
	}
	return &fumehood.Error{Class: fumehood.ErrBroken, Err: err}
}

// checkUnended refuses a guest in a container that was started again. Its program may have put links in the way of what was
// mounted then, even of the Engine's own files such as /etc/hosts, and so have had another program mounted over the guest.
func (s *service) checkUnended(ctx context.Context) error {
	state, err := s.sb.p.engine.Inspect(ctx, s.id)
	if err != nil || !state.Ended {
		return err
	}
	class := fumehood.ErrUnsupported
	if s.sb.p.watch.State(s.id).Alones > s.alones {
		class = fumehood.ErrBroken // by what has run since the sandbox was started
	}
	return &fumehood.Error{
		Class: class,
		Err:   errors.New("its container has ended and was started again: what ran in it may have replaced the guest, so no command can be trusted there"),
		Hint:  "keep the service from ending, for example by depends_on with a condition, or have the Engine run the command (Cmd.Direct, or --transport engine)",
	}
}

// failed ends a guest whose start has failed, and adds to the error what it and the Engine say.
func (c command) failed(ctx context.Context, err error) error {
	c.guest.guest.Close()
	return saying(c.explain(ctx, err), c.guest.exec.Complaint())
}

// errPowerless is the error of what root cannot do in a container of another user.
func (s *service) errPowerless() error {
	return &fumehood.Error{
		Class: fumehood.ErrUnsupported,
		Err:   fmt.Errorf("root would have no capabilities here: the service's own user is %s, and Docker Engine %s gives root none then", s.info.User, s.sb.p.server.Version),
		Hint:  "run the service as root, or use an Engine of 24.0 or newer",
	}
}

// mayAsRoot refuses what the Engine itself would start as root without root's capabilities. What the user's guest says of
// itself tells that, once for each user who may be root.
func (s *service) mayAsRoot(ctx context.Context, user string) error {
	if user == "" || user == s.info.User || isNoRoot(user) || isRoot(s.info.User) {
		return nil
	}
	s.owning.Lock()
	defer s.owning.Unlock()
	lacks, known := s.powerless[user]
	if !known {
		var err error
		if lacks, err = s.lacksAsRoot(ctx, user); err != nil {
			return err
		}
		if s.powerless == nil {
			s.powerless = map[string]bool{}
		}
		s.powerless[user] = lacks
	}
	if lacks {
		return s.errPowerless()
	}
	return nil
}

// lacksAsRoot asks a guest of a user whether it is root without root's capabilities.
func (s *service) lacksAsRoot(ctx context.Context, user string) (bool, error) {
	if err := s.checkUnended(ctx); errors.Is(err, fumehood.ErrUnsupported) || errors.Is(err, fumehood.ErrBroken) {
		return isRoot(user) && s.execLacks(), nil // no guest there can be trusted to tell
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.sb.p.guestWithin, slow(s.sb.p.guestWithin))
	defer cancel()
	u, err := s.guests.launchBy(ctx, s.sb.p.engine.ExecDuplex, user, 0)
	if err != nil {
		return false, err
	}
	u.guest.Close()
	return u.swept.Lacks, nil
}

// execLacks reports whether the Engine starts root without root's capabilities where the service has another user. What is no
// Docker Engine, and has no BuildKit, has versions of its own.
func (s *service) execLacks() bool {
	return s.sb.p.server.BuildKit && engine.VersionLess(s.sb.p.server.Version, engine.CapableExec)
}

// checkHooks refuses commands after the service's start that the Engine would start as root without root's capabilities.
func (s *service) checkHooks() error {
	if isRoot(s.info.User) || !slices.ContainsFunc(s.HookUsers, isRoot) || !s.execLacks() {
		return nil
	}
	return &fumehood.Error{Op: "check post_start", Service: s.Name, Class: fumehood.ErrUnsupported, Err: s.errPowerless()}
}

// isRoot reports whether a user, as containers have it, is root for certain.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	id, err := strconv.Atoi(name)
	return name == "" || name == "root" || err == nil && id == 0
}

// isNoRoot reports whether a user is named by another number than root's.
func isNoRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	id, err := strconv.Atoi(name)
	return err == nil && id != 0
}
