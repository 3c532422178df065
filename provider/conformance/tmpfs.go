package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// Tmpfs checks the file systems in memory of a sandbox. The image of base has sh, stat, df, and a folder /home with mode
// 755. uid is a user of the sandbox.
func Tmpfs(t *testing.T, p fumehood.Provider, base fumehood.Spec, uid int) {
	t.Helper()
	memory := base.Limits.WithDefaults().Memory
	base.Tmpfs = []string{
		fmt.Sprintf("/scratch:size=1MiB,mode=0750,uid=%d", uid), "/made/deep/", "/made/deep/below:exec,size=50%", "/home:ro", "/tmp/few:nr_inodes=3",
	}
	sb, err := p.Start(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context())
	for script, want := range map[string]string{
		"stat -c '%a %u %g' /scratch":   fmt.Sprintf("750 %d 0", uid),
		"stat -c '%a %u' /made/deep":    "1777 0",
		"stat -c '%a %u' /home":         "755 0",
		"df -P -k /scratch | tail -1":   " 1024 ",
		"df -P -k /made/deep | tail -1": fmt.Sprintf(" %d ", memory>>10),
		"grep -E -c ' /(scratch|made/deep|home|tmp/few) tmpfs .*noexec' /proc/mounts":                            "4",
		"grep -E -c ' /(scratch|made/deep|made/deep/below|home|tmp/few) tmpfs r[ow],nosuid,nodev,' /proc/mounts": "5",
		"dd if=/dev/zero of=/scratch/big bs=65536 count=32 2>&1; stat -c %s /scratch/big":                        "No space left on device",
		"touch /home/x 2>&1": "Read-only file system",
		"touch /tmp/few/1 && touch /tmp/few/2 && touch /tmp/few/3 2>&1":                                                    "No space left on device",
		"cd /made/deep && printf '#!/bin/sh\\necho ran' > x && chmod +x x && ./x 2>&1 | sed s/.*ermission/permission/":     "permission denied",
		"cd /made/deep/below && printf '#!/bin/sh\\necho ran' > x && chmod +x x && ./x; df -P -k . | awk 'END {print $2}'": fmt.Sprintf("ran\n%d", memory>>10),
	} {
		res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, Dir: "/"})
		if err != nil || !strings.Contains(res.Stdout.Text(), want) {
			t.Errorf("%s: got %+v, %v, want %s", script, res, err, want)
		}
	}
	if err := sb.WriteFile(t.Context(), "/made/deep/file", []byte("x"), fumehood.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if got, err := sb.ReadFile(t.Context(), "/made/deep/file", fumehood.ReadOptions{}); err != nil || string(got) != "x" {
		t.Errorf("got %q, %v", got, err)
	}
	base.Tmpfs = []string{fmt.Sprintf("/scratch:size=%d", memory+1)}
	_, err = p.Start(t.Context(), base)
	WantError(t, err, fumehood.ErrConfig)
}
