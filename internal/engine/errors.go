package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
)

// unreachable makes the error of a daemon that does not answer.
func (c *Client) unreachable(err error) error {
	hint := "start the Docker daemon, or set DOCKER_HOST or a docker context to one that runs; `fumehood doctor` tells more"
	if errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "permission denied") {
		hint = "this user may not use the socket: join its group (usually docker), or run as root"
	}
	return &fumehood.Error{
		Op: "connect to " + c.endpoint, Class: fumehood.ErrUnavailable,
		Err: plain(err), Hint: hint,
	}
}

// plain drops the client's advice from an error about the connection: ours names the endpoint already.
func plain(err error) error {
	var s *silent
	if client.IsErrConnectionFailed(err) && !errors.As(err, &s) {
		return nobody{err}
	}
	return err
}

// nobody is the client's error of an endpoint where nobody listens.
type nobody struct{ error }

func (n nobody) Error() string {
	text := "no Docker Engine answers there"
	var t *tried
	if errors.As(n.error, &t) {
		text = fmt.Sprintf("%s (tried %d times)", text, t.times)
	}
	return text
}

func (n nobody) Unwrap() error { return n.error }

// ErrMount is found in the error of a container that could not be created because the Engine does not
// find what is to be mounted.
var ErrMount = errors.New("the Engine cannot mount it")

// ErrSubnet is found in the error of a network that could not be created because another one has addresses
// of its subnet.
var ErrSubnet = errors.New("the subnet is in use")

// UploadHint is what to do where the daemon does not see what is to be mounted.
const UploadHint = "upload the files instead of mounting them; a session does so with `mount_workspace: false`"

// translate gives an error of the Engine's client one of our classes. op says what was being done.
func (c *Client) translate(err error, op string) error {
	if err == nil {
		return nil
	}
	var known *fumehood.Error
	if errors.As(err, &known) {
		return err
	}
	e := &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: cause{err}}
	var s *silent
	switch {
	case errors.As(err, &s) && s.files:
		e.Class = fumehood.ErrUnavailable
		e.Hint = "the daemon hangs, or waits at a file of the sandbox that never ends, such as a pipe in place of /etc/passwd"
	case errors.As(err, &s):
		e.Hint = "the daemon hangs, or has too much to do: `fumehood doctor` tells more"
	case strings.Contains(err.Error(), noSpace):
		e.Hint = noSpaceHint
	case isConnectionBroken(err): // the daemon's end, say
	case strings.Contains(err.Error(), "Pool overlaps with other one"), strings.Contains(err.Error(), "networks have overlapping IPv4"):
		e.Err = like{cause{err}, ErrSubnet}
	case strings.Contains(err.Error(), "has active endpoints"):
		e.Hint = "where `docker network inspect` shows no container, the daemon has lost count, and has to be restarted (github.com/moby/moby/issues/42119)"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Class = fumehood.ErrCancelled
	case client.IsErrConnectionFailed(err):
		return c.unreachable(err)
	case errdefs.IsNotFound(err):
		e.Class = fumehood.ErrUnavailable
	case strings.Contains(err.Error(), noCPUs):
		e.Class, e.Hint = fumehood.ErrUnsupported, "set no limit of CPUs, or "+UnheldHint
	case errdefs.IsInvalidArgument(err), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		e.Class = fumehood.ErrConfig
		if strings.Contains(err.Error(), `invalid mount config for type "bind"`) {
			e.Err, e.Hint = like{cause{err}, ErrMount}, UploadHint
		}
	case errdefs.IsNotImplemented(err):
		e.Class = fumehood.ErrUnsupported
	case strings.Contains(err.Error(), noSeccomp):
		e.Class, e.Hint = fumehood.ErrUnsupported, "enable seccomp in the daemon's kernel, or do without its isolation: --seccomp unconfined (docker.Options.Seccomp)"
	}
	return e
}

// cause is an error of the Engine without the words that say no more than that it is one.
type cause struct{ error }

func (c cause) Error() string {
	text := strings.TrimPrefix(c.error.Error(), "Error response from daemon: ")
	var u *url.Error
	if errors.As(c.error, &u) { // the request's address says nothing to people
		text = strings.Replace(text, fmt.Sprintf("%s %q: ", u.Op, u.URL), "", 1)
	}
	for _, noise := range []string{"OCI runtime exec failed: ", "exec failed: ", "unable to start container process: "} {
		text = strings.TrimPrefix(text, noise)
	}
	return strings.TrimSuffix(strings.TrimSpace(text), ": unknown")
}

func (c cause) Unwrap() error { return c.error }

// like is one of our errors in the Engine's words.
type like struct {
	cause
	kind error
}

func (l like) Is(target error) bool { return target == l.kind }

// Translate is translate for what other libraries did over this Engine.
func (c *Client) Translate(err error, op string) error { return c.translate(err, op) }

// isConnectionBroken reports whether a connection to the Engine has ended that was there.
func isConnectionBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// noSpace is the kernel's word for a full disk, which the Engine hands on.
const noSpace = "no space left on device"

const noSpaceHint = "a disk is full, probably the daemon's: make room there; `docker system df` tells what takes it"

// noCPUs is what an Engine says that can hold no limit of CPUs.
const noCPUs = "NanoCPUs can not be set"

// UnheldHint is what to do where an Engine does not hold a limit.
const UnheldHint = "use an Engine with control groups (rootless ones need version 2), or do without: --allow-unenforced-limits (docker.Options.AllowUnenforcedLimits)"

// noSeccomp is what an Engine says that can filter no system calls.
const noSeccomp = "seccomp is not enabled"

// lasting are texts of internal errors of the Engine's that the next attempt will meet again.
var lasting = []string{noSpace, "OCI runtime", "port is already allocated", "address already in use", "disk quota exceeded", noSeccomp}

func isLasting(err error) bool {
	return slices.ContainsFunc(lasting, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// notUpgraded is what the client makes of an internal error in place of a connection: it drops the Engine's words.
var notUpgraded = regexp.MustCompile(`unable to upgrade to \w+, received 5`)

// IsPassing reports whether err is of a kind that the same may not meet again: a broken connection, an Engine that is
// silent, starting again, or has an internal error. What was to be done may have been done. An error that has another
// class than those of our side is none: the Engine calls some of the user's mistakes internal errors too.
func IsPassing(err error) bool {
	if class := fumehood.ClassOf(err); class != nil && !errors.Is(class, fumehood.ErrInfrastructure) && !errors.Is(class, fumehood.ErrUnavailable) {
		return false
	}
	return err != nil && (isUnclear(err) || isPassing(err) || client.IsErrConnectionFailed(err) || notUpgraded.MatchString(err.Error()))
}

// IsGone reports whether err says that a container is not there or does not run any more, and not merely that nobody can
// tell.
func IsGone(err error) bool { return errors.Is(err, fumehood.ErrUnavailable) && !IsPassing(err) }

// startFailures maps what the Engine and runc say when a program cannot be started to the reason. The
// texts are those of Engine 20.10 to 28 and runc 1.1 to 1.3; the first that is found counts.
var startFailures = []struct {
	text  string
	class error
}{
	{"unable to find user", fumehood.ErrUserNotFound},
	{"unable to setup user", fumehood.ErrUserNotFound}, // its number, say, is none
	{"uids and gids must be in range", fumehood.ErrUserNotFound},
	{"unable to find group", fumehood.ErrUserNotFound},
	{"no matching entries in passwd", fumehood.ErrUserNotFound},
	{"no matching entries in group", fumehood.ErrUserNotFound},
	{"chdir to cwd", fumehood.ErrDirNotFound},
	{"mkdir ", fumehood.ErrDirNotFound},
	{"cwd", fumehood.ErrDirNotFound},
	{"executable file not found", fumehood.ErrProgramNotFound},
	{"is a directory", fumehood.ErrNotExecutable},
	{"permission denied", fumehood.ErrNotExecutable},
	{"exec format error", fumehood.ErrNotExecutable},
	{"no such file or directory", fumehood.ErrProgramNotFound},
	{"not a directory", fumehood.ErrProgramNotFound},
	{"argument list too long", fumehood.ErrNotStarted},
}

// quoted is a name in a message of runc's.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// startFailure makes the error of an exec that never became a process. message is what the Engine wrote
// into the stream instead of output.
func startFailure(message string) error {
	message = strings.TrimSpace(message)
	if message == "" {
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: errors.New("the Engine did not start the program and does not say why")}
	}
	err := cause{errors.New(message)}
	if strings.Contains(message, noSpace) { // whatever was to be made, and may not be asked for
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err, Hint: noSpaceHint}
	}
	said := quoted.ReplaceAllString(message, `""`) // a name may have such words in it
	for _, f := range startFailures {
		if strings.Contains(said, f.text) {
			return &fumehood.Error{Class: f.class, Err: err}
		}
	}
	return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
}
