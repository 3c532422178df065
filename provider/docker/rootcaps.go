package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/guest/files"
)

// In a container whose user is not root, an Engine before 24 starts root without capabilities (moby#45491, for 20.10
// and 23.0). With no-new-privileges they cannot be regained. So such a guest is started once more, with all
// capabilities. It first drops those that its container does not have. A daemon that lacks some capabilities itself,
// for example in a restricted virtual machine, refuses to do that.

// errPowerless returns the error for root without capabilities in a container whose user is not root.
func (s *service) errPowerless() error {
	return &fumehood.Error{
		Class: fumehood.ErrUnsupported,
		Err:   fmt.Errorf("root would have no capabilities here: in a service of user %s, a Docker Engine before %s gives root none", s.Info.User, engine.CapableExec),
		Hint:  `run the service as root, give it security_opt: ["no-new-privileges:false"] in the Compose file, or use an Engine of 24.0 or newer`,
	}
}

// mayAsRoot rejects a user whom the Engine would start as root without root's capabilities. It asks the user's guest,
// once for each user who may be root.
func (s *service) mayAsRoot(ctx context.Context, user string) error {
	if user == "" || user == s.Info.User || isNoRoot(user) || isRoot(s.Info.User) {
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

// lacksAsRoot asks a user's guest whether it is root without root's capabilities.
func (s *service) lacksAsRoot(ctx context.Context, user string) (bool, error) {
	if err := s.checkUnended(ctx); errors.Is(err, fumehood.ErrUnsupported) || errors.Is(err, fumehood.ErrBroken) {
		if !isRoot(user) {
			return false, nil
		}
		return s.execLacks(ctx) // the guest cannot be trusted
	}
	return s.Guests.Lacks(ctx, user)
}

// execLacks reports whether the Engine starts root without root's capabilities if the service's user is not root. An
// engine without BuildKit is not a Docker Engine, and its version numbers mean something else.
func (s *service) execLacks(ctx context.Context) (bool, error) {
	server, err := s.sb.p.engine.Server(ctx)
	return err == nil && server.BuildKit && engine.VersionLess(server.Version, engine.CapableExec), err
}

// checkIDs rejects numbers that are not user or group ids, before the Engine takes them for names.
func (s *service) checkIDs(ctx context.Context) error {
	for _, user := range slices.Concat(s.HookUsers, []string{s.Info.User}) {
		if err := files.CheckIDs(user); err != nil {
			return &fumehood.Error{Op: "check the user", Service: s.Name, Class: fumehood.ErrConfig, Err: err}
		}
	}
	for _, group := range s.Groups {
		err := files.CheckIDs(group)
		if err == nil && s.id != "" {
			err = s.sb.p.engine.CheckGroup(ctx, s.id, group)
		}
		if fumehood.ClassOf(err) != nil {
			return err
		}
		if err != nil {
			return &fumehood.Error{Op: "check group_add", Service: s.Name, Class: fumehood.ErrConfig, Err: err}
		}
	}
	return nil
}

// checkHooks rejects post_start hooks that the Engine would run as root without root's capabilities.
func (s *service) checkHooks(ctx context.Context) error {
	if isRoot(s.Info.User) || !slices.ContainsFunc(s.HookUsers, isRoot) {
		return nil
	}
	if lacks, err := s.execLacks(ctx); err != nil || !lacks {
		return err
	}
	return &fumehood.Error{Op: "check post_start", Service: s.Name, Class: fumehood.ErrUnsupported, Err: s.errPowerless()}
}

// isRoot reports whether a user, in the format of containers, is certainly root.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	id, err := strconv.Atoi(name)
	return name == "" || name == "root" || err == nil && id == 0
}

// isNoRoot reports whether a user is a number other than root's.
func isNoRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	id, err := strconv.Atoi(name)
	return err == nil && id != 0
}
