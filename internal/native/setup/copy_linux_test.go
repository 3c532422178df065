package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/test/tier"
)

// The copy of layers is what an overlay of them shows. The mounts are in a separate process's mount namespace.
func TestRoot_copyLayers(t *testing.T) {
	if os.Geteuid() != 0 {
		tier.Missing(t, tier.CI, errors.New("mounts take root"))
	}
	if !tier.Inside(t, syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}) {
		return
	}
	dir := t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { check(unix.Unmount(dir, unix.MNT_DETACH)) })
	low, high := filepath.Join(dir, "low"), filepath.Join(dir, "high")
	for _, d := range []string{low + "/opaque", low + "/kept", low + "/gone/deep", low + "/becomes-link", low + "/becomes-file", high + "/opaque", high + "/kept", high + "/was-link"} {
		check(os.MkdirAll(d, 0o751))
	}
	for name, text := range map[string]string{
		low + "/opaque/hidden": "1", low + "/kept/low": "2", low + "/kept/gone": "3", low + "/gone/deep/f": "4", low + "/becomes-link/f": "5",
		low + "/becomes-file/f": "6", low + "/was-file": "7", high + "/opaque/seen": "8", high + "/kept/high": "9", high + "/becomes-file": "10",
		high + "/was-link/in-link": "11", low + "/suid": "12", low + "/pair": "13",
	} {
		check(os.WriteFile(name, []byte(text), 0o640))
	}
	check(os.Symlink(dir+"/outside", low+"/was-link"))
	check(os.Symlink("/nowhere", high+"/becomes-link"))
	check(os.Mkdir(dir+"/outside", 0o755))
	check(os.Link(low+"/pair", low+"/kept/pair"))
	check(os.Lchown(low+"/was-link", 3, 4))
	check(os.Chown(low+"/suid", 1, 2))
	check(os.Chmod(low+"/suid", 0o755|fs.ModeSetuid))
	check(os.Chmod(low+"/kept", 0o700))
	check(unix.Setxattr(low+"/suid", "user.test", []byte("value"), 0))
	check(unix.Mkfifo(high+"/fifo", 0o600))
	for _, whiteout := range []string{"/gone", "/kept/gone", "/was-file"} {
		check(unix.Mknod(high+whiteout, unix.S_IFCHR, 0))
	}
	check(unix.Setxattr(high+"/opaque", "trusted.overlay.opaque", []byte("y"), 0))
	for _, layer := range []string{low, high} {
		check(filepath.WalkDir(layer, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Sec: 7}, {Sec: int64(len(path))}}, unix.AT_SYMLINK_NOFOLLOW))
		}))
	}

	r := Root{Layers: []string{low, high}, Scratch: filepath.Join(dir, "scratch"), Size: 1 << 20}
	check(os.Mkdir(r.Scratch, 0o700))
	check(r.mount(nil))
	want := describeTree(t, filepath.Join(r.Scratch, "root"))
	check(unix.Unmount(filepath.Join(r.Scratch, "root"), 0))
	check(r.copyLayers())
	if got := describeTree(t, filepath.Join(r.Scratch, "root")); !maps.Equal(got, want) {
		for path := range want {
			if got[path] != want[path] {
				t.Errorf("%s: %q, want %q", path, got[path], want[path])
			}
		}
		t.Errorf("got %d files, want %d", len(got), len(want))
	}
	if left, err := os.ReadDir(dir + "/outside"); err != nil || len(left) > 0 {
		t.Errorf("a link was followed: %v, %v", left, err)
	}
}

// describeTree describes the files in a folder.
func describeTree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		content := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			value := make([]byte, 100)
			n, _ := unix.Lgetxattr(path, "user.test", value) // most have none
			content = fmt.Sprintf("%s %d %s", text, st.Nlink, value[:max(n, 0)])
		case unix.S_IFLNK:
			content, err = os.Readlink(path)
		}
		if path == root {
			st.Mtim.Sec = 0 // that of its creation
		}
		all[strings.TrimPrefix(path, root)] = fmt.Sprintf("%o %d:%d %d %s", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
