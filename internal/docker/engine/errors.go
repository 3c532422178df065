package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
)

// unreachable returns the error of a daemon that does not answer.
func (c *Client) unreachable(err error) error {
	hint := "start the Docker daemon, or set DOCKER_HOST or a docker context to a running one; `fumehood doctor` checks it"
	if isDenied(err) {
		hint = "add the user to the socket's group (usually docker), run as root, or use the native provider"
	}
	return &fumehood.Error{
		Op: "connect to " + c.endpoint, Class: fumehood.ErrUnavailable,
		Err: plain(err), Hint: hint,
	}
}

func isDenied(err error) bool {
	return errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "permission denied")
}

// IsAbsent reports whether an error of Connect means that nothing listens at the endpoint, or that this user may not
// connect to it.
func IsAbsent(err error) bool {
	_, nothing := errors.AsType[nobody](err)
	return nothing || err != nil && isDenied(err)
}

// plain drops the client's advice from a connection error; our error names the endpoint already.
func plain(err error) error {
	var s *silent
	if client.IsErrConnectionFailed(err) && !errors.As(err, &s) {
		return nobody{err}
	}
	return err
}

// nobody is the client's error of an endpoint on which nothing listens, or to which this user may not connect.
type nobody struct{ error }

func (n nobody) Error() string {
	if isDenied(n.error) {
		return "this user may not use the Docker Engine's socket"
	}
	text := "no Docker Engine answers there"
	var t *tried
	if errors.As(n.error, &t) {
		text = fmt.Sprintf("%s (tried %d times)", text, t.times)
	}
	return text
}

// Is reports whether target is fs.ErrPermission, and this user may not connect. The client's error does not match it.
func (n nobody) Is(target error) bool { return target == fs.ErrPermission && isDenied(n.error) }

func (n nobody) Unwrap() error { return n.error }

// ErrMount matches the error of a container that could not be created because the Engine does not find the source of
// a mount.
var ErrMount = errors.New("the Engine cannot mount it")

// ErrSubnet matches the error of a network that could not be created because its subnet overlaps with that of another
// network.
var ErrSubnet = errors.New("the subnet is in use")

// ErrPort matches the error of a container that could not be started because a port of the host is in use.
var ErrPort = errors.New("a port of the host is in use")

// portTexts are the texts of Engines, with and without a proxy for ports, for a port in use.
var portTexts = []string{"port is already allocated", "address already in use", "Only one usage of each socket address"}

// noMount are texts of runc about mounts in /proc, which it allows for a few files only.
var noMount = []string{"cannot be mounted because it is inside /proc", "cannot be mounted because it is not of type proc"}

func hasAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// UploadHint is the advice for a mount whose source the daemon does not see.
const UploadHint = "upload the files instead of mounting them; a session does so with `mount_workspace: false`"

// translate gives an error of the Engine's client one of our classes. op describes the operation.
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
		e.Hint = "the daemon hangs, or blocks on a file of the sandbox, such as a pipe in place of /etc/passwd"
	case errors.As(err, &s):
		e.Hint = "the daemon hangs or is overloaded; `fumehood doctor` checks it"
	case strings.Contains(err.Error(), noSpace):
		e.Hint = noSpaceHint
	case isConnectionBroken(err): // for example, the daemon ended
	case strings.Contains(err.Error(), "Pool overlaps with other one"), strings.Contains(err.Error(), "networks have overlapping IPv4"):
		e.Err = like{cause{err}, ErrSubnet}
	case hasAny(err.Error(), portTexts):
		e.Err = like{cause{err}, ErrPort}
	case hasAny(err.Error(), noMount):
		e.Class, e.Hint = fumehood.ErrConfig, "mount it outside of /proc"
	case strings.Contains(err.Error(), "has active endpoints"):
		e.Hint = "if `docker network inspect` shows no container, the daemon's count is wrong and it has to be restarted (github.com/moby/moby/issues/42119)"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Class = fumehood.ErrCanceled
	case client.IsErrConnectionFailed(err):
		return c.unreachable(err)
	case errdefs.IsNotFound(err):
		e.Class = fumehood.ErrUnavailable
	case strings.Contains(err.Error(), noCPUs):
		e.Class, e.Hint = fumehood.ErrUnsupported, "set no CPU limit, or "+UnheldHint
	case errdefs.IsInvalidArgument(err), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		e.Class = fumehood.ErrConfig
		if strings.Contains(err.Error(), `invalid mount config for type "bind"`) {
			e.Err, e.Hint = like{cause{err}, ErrMount}, UploadHint
		}
	case errdefs.IsNotImplemented(err):
		e.Class = fumehood.ErrUnsupported
	case strings.Contains(err.Error(), noSeccomp):
		e.Class, e.Hint = fumehood.ErrUnsupported, "enable seccomp in the daemon's kernel, or run without its isolation: --seccomp unconfined"
	}
	return e
}

// cause is an error of the Engine without the prefixes that only mark it as such an error.
type cause struct{ error }

func (c cause) Error() string {
	text := strings.TrimPrefix(c.error.Error(), "Error response from daemon: ")
	var u *url.Error
	if errors.As(c.error, &u) { // the request's address doesn't help the user
		text = strings.Replace(text, fmt.Sprintf("%s %q: ", u.Op, u.URL), "", 1)
	}
	for _, noise := range []string{"OCI runtime exec failed: ", "exec failed: ", "unable to start container process: "} {
		text = strings.TrimPrefix(text, noise)
	}
	return strings.TrimSuffix(strings.TrimSpace(text), ": unknown")
}

func (c cause) Unwrap() error { return c.error }

// like is an error of the Engine that matches one of our sentinel errors.
type like struct {
	cause
	kind error
}

func (l like) Is(target error) bool { return target == l.kind }

// Translate gives an error of another library that used this Engine one of our classes, as translate does.
func (c *Client) Translate(err error, op string) error { return c.translate(err, op) }

// isConnectionBroken reports whether err means that an established connection to the Engine has ended.
func isConnectionBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

// noSpace is the kernel's text for a full disk, which the Engine passes on.
const noSpace = "no space left on device"

const noSpaceHint = "a disk is full, probably the daemon's: free space there; `docker system df` shows what uses it"

// noCPUs is the text of an Engine that cannot limit CPUs.
const noCPUs = "NanoCPUs can not be set"

// UnheldHint is the advice for an Engine that does not enforce a limit.
const UnheldHint = "use an Engine with control groups (rootless ones need version 2), or run without the limit (--allow-unenforced-limits)"

// noSeccomp is the text of an Engine that cannot filter system calls.
const noSeccomp = "seccomp is not enabled"

// lasting are texts of the Engine's internal errors that a retry would meet again.
var lasting = append([]string{noSpace, "OCI runtime", "disk quota exceeded", noSeccomp}, portTexts...)

func isLasting(err error) bool { return hasAny(err.Error(), lasting) }

// notUpgraded matches the client's error of an internal error in place of a connection. The client drops the Engine's
// text.
var notUpgraded = regexp.MustCompile(`unable to upgrade to \w+, received 5`)

// IsPassing reports whether err may not occur again in a retry: a broken connection, or an Engine that is silent,
// restarting or has an internal error. The operation may have been done. An error of another class than
// ErrInfrastructure and ErrUnavailable is never passing: the Engine reports some of the user's mistakes as internal
// errors.
func IsPassing(err error) bool {
	if class := fumehood.ClassOf(err); class != nil && !errors.Is(class, fumehood.ErrInfrastructure) && !errors.Is(class, fumehood.ErrUnavailable) {
		return false
	}
	return err != nil && (isUnclear(err) || isPassing(err) || client.IsErrConnectionFailed(err) || notUpgraded.MatchString(err.Error()))
}

// IsGone reports whether err means that a container does not exist or does not run any more. It is false if the
// container's state is unknown.
func IsGone(err error) bool { return errors.Is(err, fumehood.ErrUnavailable) && !IsPassing(err) }

// startFailures maps the messages of the Engine and runc about a failed start to error classes. The texts are those
// of Engine 20.10 to 28 and runc 1.1 to 1.3. The first match counts.
var startFailures = []struct {
	text  string
	class error
}{
	{"unable to find user", fumehood.ErrUserNotFound},
	{"unable to setup user: stat /dev/null", fumehood.ErrBroken}, // a program has removed it
	{"unable to setup user", fumehood.ErrUserNotFound},           // for example, an invalid number
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

// quoted matches a name in a message of runc.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// startFailure returns the error of an exec that never became a process. message is what the Engine wrote into the
// stream instead of output.
func startFailure(message string) error {
	message = strings.TrimSpace(message)
	if message == "" {
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: errors.New("the Engine did not start the program and gave no reason")}
	}
	err := cause{errors.New(message)}
	if strings.Contains(message, noSpace) { // whatever was to be created; that may not be the user's request
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err, Hint: noSpaceHint}
	}
	unquoted := quoted.ReplaceAllString(message, `""`) // names may contain such texts
	for _, f := range startFailures {
		if strings.Contains(unquoted, f.text) {
			return &fumehood.Error{Class: f.class, Err: err}
		}
	}
	return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: err}
}
