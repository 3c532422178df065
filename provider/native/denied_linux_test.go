//go:build amd64 || arm64

package native

import "testing"

func TestHiddenProc(t *testing.T) {
	t.Parallel()
	const (
		root = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n25 22 0:22 / /proc rw,nosuid - proc proc rw\n"
		misc = "30 25 0:30 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n"
	)
	for text, want := range map[string]string{
		"":          "",
		root:        "",
		root + misc: "",
		root + misc + "31 25 0:22 /bus /proc/bus ro - proc proc rw\n": "/proc/bus",
		root + "31 25 0:31 / /proc/kcore rw - tmpfs tmpfs rw\n":       "/proc/kcore",
		root + "31 22 0:31 / /process rw - tmpfs tmpfs rw\n":          "",
		root + "31 25": "",
	} {
		if got := hiddenProc(text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
