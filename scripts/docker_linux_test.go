package scripts_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fumehood/fumehood/test/tier"
)

// A dockerd that is killed leaves its PID file. After a restart of the machine another process may have this PID.
func TestEnsureDocker_stalePID(t *testing.T) {
	tier.NeedDocker(t)
	if _, err := exec.LookPath("dockerd"); err != nil || os.Getuid() != 0 {
		tier.Missing(t, tier.Quick, errors.New("the test starts a Docker Engine: it needs dockerd and root"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// The namespaces hide the machine's own dockerd, and end the new one with the test.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child", "bash", "-euc", `
		for dir in /run /var/lib/docker /var/log; do mount -t tmpfs tmpfs "$dir"; done
		mkdir -p /run/lock /run/docker/containerd
		sleep 600 &
		echo -n $! | tee /run/docker.pid >/run/docker/containerd/containerd.pid
		./ensure-docker
		kill -0 $!
		test "$(cat /run/docker.pid)" != $!
		docker version`)
	cmd.Env = append(os.Environ(), "DOCKER_HOST=", "DOCKER_CONFIG="+filepath.Join(t.TempDir(), "none"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
