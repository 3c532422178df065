package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/test/tier"
)

// everyday are the programs that tests may run on every machine: those of a small Debian, git, Go, gcc and a Docker Engine.
// Tests look for any other program with tier.Program.
const everyday = `as bash basename cat chmod chown cp cut date dd dirname df du echo env expr false find flock gcc git go grep
	head hostname id kill ld ln ls make mkdir mkfifo mkfs.ext4 mknod mktemp mount mv nice nohup nproc nsenter prlimit ps
	pwd readlink realpath rm rmdir sed seq setpriv setsid sh sha256sum sleep sort stat stdbuf sync tail tar tee test timeout touch
	tr true truncate tty umount uname unshare wc xargs yes
	containerd containerd-shim-runc-v2 docker docker-proxy dockerd iptables python3`

// TestPrograms_missing runs tests where only everyday programs are installed. Tests that need another one are skipped.
// In the tier ci it runs those that use other programs.
func TestPrograms_missing(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.CI)
	dir := t.TempDir()
	for _, name := range strings.Fields(everyday) {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Log(err)
		}
	}
	args := tier.Pick(t, nil, []string{
		"-short", "-run", "^Test(Client_Build|Guest_arm64|Network|Pod|Provider_(Open_ownerKilled|Start_subordinate)|Routes|Runtime|Sandbox_CheckRoutes|Service_Forward)",
		"./internal/native/buildkit", "./internal/guest/guestbin", "./internal/hostnet", "./provider/docker", "./provider/native",
	}, []string{"-p", "1", "./..."})
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) { // they are compiled already
		args = append([]string{"-race"}, args...)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-vet=off", "-count=1"}, args...)...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "PATH="+dir, tier.Variable+"=quick")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
