//go:build amd64 || arm64

package native

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/native/setup"
)

// rootRights are the capabilities without which root is like any other user here: its sandboxes are in user namespaces.
// In many containers root lacks the last two.
var rootRights = []struct {
	name string
	bit  int
}{
	{"CHOWN", unix.CAP_CHOWN},
	{"DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE},
	{"FOWNER", unix.CAP_FOWNER},
	{"KILL", unix.CAP_KILL},
	{"MKNOD", unix.CAP_MKNOD},
	{"SETGID", unix.CAP_SETGID},
	{"SETPCAP", unix.CAP_SETPCAP},
	{"SETUID", unix.CAP_SETUID},
	{"SYS_CHROOT", unix.CAP_SYS_CHROOT},
	{"NET_ADMIN", unix.CAP_NET_ADMIN},
	{"SYS_ADMIN", unix.CAP_SYS_ADMIN},
}

// missingRights are those of rootRights that this process lacks, for a message: "NET_ADMIN, SYS_ADMIN".
var missingRights = sync.OnceValue(func() string {
	has, err := setup.PermittedSet()
	var missing []string
	for _, r := range rootRights {
		if err != nil || has&(1<<r.bit) == 0 {
			missing = append(missing, r.name)
		}
	}
	return strings.Join(missing, ", ")
})

// rootless reports whether this process runs without root, or as a root that lacks rootRights. Then sandboxes are in user
// namespaces whose root is this process's user. Other users exist there only if this user has subordinate ids, or is root.
func rootless() bool { return !isRoot() || missingRights() != "" }

func isRoot() bool { return os.Geteuid() == 0 }

// rootHint is what a user without the rights of root may do to get them.
func rootHint() string {
	if isRoot() {
		return "give root the capabilities " + missingRights()
	}
	return "run as root"
}
