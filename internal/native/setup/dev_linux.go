package setup

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ShmSize is the size of /dev/shm in bytes, as in Docker.
const ShmSize = 64 << 20

// devices are the device nodes of a sandbox, by name. Their numbers are in the kernel's devices.txt.
var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

// links are the links in /dev.
var links = map[string]string{
	"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	"core": "/proc/kcore", "ptmx": "pts/ptmx",
}

// makeDev mounts and fills /dev. shm is the size of /dev/shm in bytes. It attaches the host's device nodes, or makes new ones if there are none.
func makeDev(nodes map[string]mount, oneUser bool, shm int64) error {
	const execless = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	dev, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID, "size=65536k", "mode=0755")
	if err != nil {
		return err
	}
	defer dev.close()
	if err := dev.attach("/dev"); err != nil {
		return err
	}
	for _, d := range devices {
		at := "/dev/" + d.name
		if node, ok := nodes[d.name]; ok {
			if err := node.attachMade(at); err != nil {
				return err
			}
			continue
		}
		if err := unix.Mknod(at, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil { //nolint:gosec // small numbers
			return &os.PathError{Op: "mknod", Path: at, Err: err}
		}
		if err := os.Chmod(at, 0o666); err != nil { //nolint:gosec // as everywhere; the umask may have changed it
			return err
		}
	}
	terminals := []string{"newinstance", "ptmxmode=0666", "mode=0620"}
	if !oneUser {
		terminals = append(terminals, "gid=5")
	}
	for name, to := range links {
		if err := os.Symlink(to, "/dev/"+name); err != nil {
			return err
		}
	}
	for _, fs := range []struct {
		kind, at   string
		attributes int
		options    []string
	}{
		{"devpts", "/dev/pts", execless, terminals},
		{"tmpfs", "/dev/shm", restricted, []string{fmt.Sprintf("size=%d", shm), "mode=1777"}},
		{"mqueue", "/dev/mqueue", restricted, nil},
	} {
		m, err := newFS(fs.kind, fs.attributes, fs.options...)
		if err != nil {
			return err
		}
		if err = os.Mkdir(fs.at, 0o755); err == nil { //nolint:gosec // every user may enter it
			err = m.attach(fs.at)
		}
		m.close()
		if err != nil {
			return err
		}
	}
	return nil
}
