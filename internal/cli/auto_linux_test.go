package cli

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// withoutDocker returns a command that runs fumehood where nothing listens at the default socket of Docker.
func withoutDocker(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount file systems")
	}
	cmd, _ := program(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	script := `mount -t tmpfs none /run && mkdir -p /run/lock && if test ! -L /var/run; then mount -t tmpfs none /var/run; fi && exec fumehood "$@"`
	run := exec.CommandContext(ctx, "unshare", append([]string{"-m", "sh", "-c", script, "sh"}, args...)...)
	run.Dir = cmd.Dir
	for _, kv := range cmd.Env {
		if !strings.HasPrefix(kv, "DOCKER_") && !strings.HasPrefix(kv, "XDG_RUNTIME_DIR=") {
			run.Env = append(run.Env, kv)
		}
	}
	return run
}

// A user who may not use Docker's socket is told so.
func TestProvider_auto_denied(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount file systems")
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err == nil {
		t.Cleanup(func() { _ = l.Close() }) // nobody connects
		err = os.Chown(socket, 65534, 65534)
	}
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"native": {[]string{"run", "--image", "oci:missing", "--", "true"}, "this user may not use the Docker Engine's socket; sandboxes run with --provider native"},
		"docker": {[]string{"run", "--provider", "docker", "--", "true"}, "this user may not use the Docker Engine's socket (add the user to the socket's group"},
		"image":  {[]string{"run", "--provider", "native", "--image", "docker-daemon:x", "--", "true"}, "this user may not use the Docker Engine's socket: "},
		"exec":   {[]string{"exec", "box", "--", "true"}, "whose socket this user may not use: add the user to its group"},
		"down":   {[]string{"down", "box"}, "whose socket this user may not use: add the user to its group"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := withoutDocker(t, c.args...)
			const denied = `: >/var/run/docker.sock && mount --bind "$SOCKET" /var/run/docker.sock && exec setpriv --bounding-set=-dac_override,-dac_read_search fumehood`
			run.Args[4] = strings.Replace(run.Args[4], "exec fumehood", denied, 1)
			run.Env = append(run.Env, "SOCKET="+socket)
			if text, err := run.CombinedOutput(); err == nil || !strings.Contains(string(text), c.says) {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

func TestProvider_auto(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args     []string
		variable string
		says     string // on standard error
	}{
		"native": {args: []string{"run", "--image", "oci:missing", "--", "true"}, says: "no Docker Engine answers there; sandboxes run with --provider native"},
		"named":  {args: []string{"run", "--image", "oci:missing", "--", "true"}, variable: "DOCKER_HOST=unix:///nowhere.sock", says: "connect to unix:///nowhere.sock: no Docker Engine answers there (start"},
		"engine": {args: []string{"run", "--transport", "engine", "--image", "oci:missing", "--", "true"}, says: "connect to unix:///var/run/docker.sock: no Docker Engine answers there (start"},
		"ps":     {args: []string{"ps"}},
		"doctor": {args: []string{"doctor"}},
		"exec":   {args: []string{"exec", "box", "--", "true"}, says: "open sandbox box: there is no such kept sandbox"},
		"down":   {args: []string{"down", "box"}, says: "no sandbox box"},

		"engine ps":      {args: []string{"--transport", "engine", "ps"}, says: "no Docker Engine answers there (start"},
		"engine exec":    {args: []string{"--transport", "engine", "exec", "box", "--", "true"}, says: "no Docker Engine answers there (start"},
		"engine down":    {args: []string{"--transport", "engine", "down", "box"}, says: "no Docker Engine answers there (start"},
		"engine cleanup": {args: []string{"--transport", "engine", "cleanup"}, says: "no Docker Engine answers there (start"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := withoutDocker(t, c.args...)
			if c.variable != "" {
				run.Env = append(run.Env, c.variable)
			}
			var stderr bytes.Buffer
			run.Stderr = &stderr
			if err := run.Run(); (err == nil) != (c.says == "") {
				t.Errorf("%v: %s", err, stderr.String())
			}
			if got := stderr.String(); !strings.Contains(got, c.says) || strings.Contains(got, "sandboxes run with") != (name == "native") {
				t.Errorf("says %q", got)
			}
		})
	}
}
