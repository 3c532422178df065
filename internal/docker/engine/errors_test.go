package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestStartFailure(t *testing.T) {
	const exec = "OCI runtime exec failed: exec failed: unable to start container process: "
	for message, class := range map[string]error{
		exec + `exec: "nope": executable file not found in $PATH: unknown`:                                                         fumehood.ErrProgramNotFound,
		exec + `exec: "/nope": stat /nope: no such file or directory: unknown`:                                                     fumehood.ErrProgramNotFound,
		exec + `exec: "cwdtool": executable file not found in $PATH: unknown`:                                                      fumehood.ErrProgramNotFound,
		exec + `exec: "mkdir -p x": executable file not found in $PATH: unknown`:                                                   fumehood.ErrProgramNotFound,
		exec + `exec: "permission denied": executable file not found in $PATH: unknown`:                                            fumehood.ErrProgramNotFound,
		exec + `exec: "/etc": is a directory: permission denied`:                                                                   fumehood.ErrNotExecutable,
		exec + `exec: "/etc/passwd": permission denied: unknown`:                                                                   fumehood.ErrNotExecutable,
		exec + `chdir to cwd ("/nope") set in config.json failed: no such file or directory: unknown`:                              fumehood.ErrDirNotFound,
		exec + `chdir to cwd ("/executable file not found") set in config.json failed: not a directory: unknown`:                   fumehood.ErrDirNotFound,
		"unable to find user nope: no matching entries in passwd file":                                                             fumehood.ErrUserNotFound,
		"unable to find group nope: no matching entries in group file":                                                             fumehood.ErrUserNotFound,
		"OCI runtime exec failed: exec failed: unable to start container process: unable to setup user: invalid argument: unknown": fumehood.ErrUserNotFound,
		exec + "unable to setup user: stat /dev/null: no such file or directory: unknown":                                          fumehood.ErrBroken,
		"the daemon has a bad day": fumehood.ErrInfrastructure,
		"":                         fumehood.ErrInfrastructure,
	} {
		if err := startFailure(message); !errors.Is(fumehood.ClassOf(err), class) {
			t.Errorf("%q is %v, want %v", message, fumehood.ClassOf(err), class)
		}
	}
}

func TestPullFailure(t *testing.T) {
	c := &Client{endpoint: "unix:///x"}
	for _, r := range []struct {
		ref, text string
		class     error
	}{
		{"a/b:v429", "manifest for a/b:v429 not found: manifest unknown: manifest unknown", fumehood.ErrConfig},
		{"127.0.0.1:500/x", `unknown: {"errors":[{"code":"MANIFEST_UNKNOWN"}]}`, fumehood.ErrConfig},
		{"r/x:1", `failed to resolve reference "r/x:1": r/x:1: not found`, fumehood.ErrConfig},
		{"r/x:1", "unexpected status from HEAD request to https://r/v2/x/manifests/1: 403 Forbidden", fumehood.ErrConfig},
		{"r/x:1", "toomanyrequests: You have reached your pull rate limit", fumehood.ErrInfrastructure},
		{"r/x:1", "received unexpected HTTP status: 503 Service Unavailable", fumehood.ErrInfrastructure},
		{"r/x:1", `Get "https://r/v2/": dial tcp: lookup r: no such host`, fumehood.ErrUnavailable},
	} {
		if err := c.pullFailure(t.Context(), r.ref, errors.New(r.text)); !errors.Is(fumehood.ClassOf(err), r.class) {
			t.Errorf("%q is %v, want %v", r.text, fumehood.ClassOf(err), r.class)
		}
	}
}

func TestTranslate_NoSeccomp(t *testing.T) {
	err := (&Client{}).translate(errors.New("seccomp is not enabled in your kernel, cannot run a custom seccomp profile"), "start container")
	var e *fumehood.Error
	if !errors.As(err, &e) || !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(e.Hint, "--seccomp unconfined") {
		t.Errorf("got %v", err)
	}
}

func TestVersionLess(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"20.10.24+dfsg1", "24.0.6", true},
		{"24.0.6", "24.0.6", false},
		{"24.0.7", "24.0.6", false},
		{"28.5.2+dfsg4", "24.0.6", false},
		{"1.41", "1.9", false},
		{"1.40", "1.41", true},
		{"24", "24.0.6", true},
		{"dev", "24.0.6", true},
	} {
		if got := VersionLess(c.a, c.b); got != c.want {
			t.Errorf("VersionLess(%s, %s) = %v", c.a, c.b, got)
		}
	}
}
