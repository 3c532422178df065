package hostpath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	sys "golang.org/x/sys/unix"
)

// The daemon may follow a link that this process may not look at.
func TestEnds_denied(t *testing.T) {
	dir := links(t, []string{"shut/file"}, map[string]string{"shut/link": "/etc"})
	if err := os.Chmod(filepath.Join(dir, "shut"), 0); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // root may look at everything: another user of this thread alone may not
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const nobody = 65534
		_, _, _ = sys.RawSyscall(sys.SYS_SETFSUID, nobody, 0, 0) // it returns the previous user
		defer func() { _, _, _ = sys.RawSyscall(sys.SYS_SETFSUID, 0, 0, 0) }()
	}
	if _, err := ends(filepath.Join(dir, "shut", "link")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v", err)
	}
}
