//go:build linux && (amd64 || arm64)

package native_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/native"
)

// Root in the sandbox must be an unprivileged user on the host, and the owners of files must be as without a user
// namespace.
func TestOptions_UserNamespace(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{UserNamespace: true})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, limits := range map[string]fumehood.Limits{"memory": {}, "disk": {Disk: 2 << 30}} {
		t.Run(name, func(t *testing.T) {
			sb := start(t, p, fumehood.Spec{Image: busybox, Limits: limits, Mounts: []fumehood.Mount{{Host: dir, Container: "/rw", Writable: true}}})
			for script, want := range map[string]string{
				"id -u; id -g": "0\n0",
				"awk '{print $1, ($2 >= 1879048192), $3}' /proc/self/uid_map /proc/self/gid_map": "0 1 65536\n0 1 65536",
				"stat -c %u:%g /etc/passwd /rw/file /home/tester":                                "0:0\n0:0\n1000:1000",
				"cat /rw/file; echo of the sandbox > /rw/new":                                    "of the host",
				"echo x > /dev/null; stat -c %t:%T /dev/null /dev/urandom":                       "1:3\n1:9",
				"rm -r /var && mkdir /var && ls -A /var":                                         "",
				"chown 7:8 /etc/hosts; stat -c %u:%g /etc/hosts":                                 "7:8",
			} {
				if got := run(t, sb, script); got != want {
					t.Errorf("%s: got %q, want %q", script, got, want)
				}
			}
			if got := run(t, sb.As("tester:1"), "id -un; id -g; touch /tmp/x; stat -c %U /tmp/x"); got != "tester\n1\ntester" {
				t.Errorf("as another user: got %q", got)
			}
		})
	}
}
