package guest

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/wire"
)

// A launched guest that is killed before it becomes the program must not count as a started program.
func TestLaunch_guestKilled(t *testing.T) {
	for name, script := range map[string]string{
		"at once":                  "exit 1",
		"after reading its launch": "read -r line <&3; kill -9 $$",
	} {
		self := filepath.Join(t.TempDir(), "guest")
		if err := files.WriteProgram(self, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		l := launch{Program: []byte("/bin/true"), Args: [][]byte{[]byte("true")}, Rlimits: wire.Rlimits{OpenFiles: 100}}
		_, failed := l.start(self, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if failed == nil || failed.What != wire.Hindered || !strings.Contains(failed.Text, "limits") {
			t.Errorf("%s: %+v", name, failed)
		}
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err == nil {
			t.Errorf("%s: a child is left, %d", name, pid)
		}
	}
}
