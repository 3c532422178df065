package cli

import (
	"bytes"
	"context"
	"os"
	"os/exec"
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
