package setup

import (
	"testing"

	"golang.org/x/sys/unix"
)

// After a failure, mounts that were not made yet must not be taken for descriptor 0, the connection to the host.
func TestSources_close_unset(t *testing.T) {
	sources{}.close()
	if _, err := unix.FcntlInt(0, unix.F_GETFD, 0); err != nil {
		t.Errorf("standard input: %v", err)
	}
}

func TestReserved(t *testing.T) {
	for at, want := range map[string]bool{
		"/": true, "/proc": true, "/proc/1": true, "/sys": true, "/sys/fs/cgroup": true, "/.fumehood": true, "/.fumehood/guest": true,
		"/processes": false, "/system": false, "/.fumehood2": false, "/srv/proc": false, "/dev/x": false, "/dev/fd": true, "/dev/fd/6/guest": true, "/dev/fdx": false, "/etc": false,
	} {
		if got := Reserved(at); got != want {
			t.Errorf("%s: got %v", at, got)
		}
	}
}
