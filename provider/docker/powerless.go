package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
)

// In a container of another user, an Engine before 24 starts root without capabilities (moby#45491, for 20.10 and 23.0),
// and with no-new-privileges there is no way to get them back. So such a guest is started once more, with all
// capabilities, of which it keeps those of its container before it does anything else. A daemon that lacks some
// itself, as in a restricted virtual machine, refuses that.

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
	return s.guests.Lacks(ctx, user)
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
