//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// memoryDisk returns the largest writable layer in memory, in bytes.
func memoryDisk(limits fumehood.Limits) int64 {
	if limits.Memory > 0 {
		return min(DefaultDisk, limits.Memory/2)
	}
	return DefaultDisk
}

// onDisk reports whether the writable layer is too large for memory.
func onDisk(limits fumehood.Limits) bool { return limits.Disk > memoryDisk(limits) }

// makeDisk makes an ext4 of a size in bytes, whose folder belongs to a user of the host, and returns a detached mount of
// it. Its blocks are those of a file in a folder, which is removed at once. The last mount keeps the loop device and the
// file: both disappear with it.
func makeDisk(ctx context.Context, folder string, size int64, user int) (_ *os.File, err error) {
	name := filepath.Join(folder, "disk")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := errors.Join(os.Remove(name), f.Truncate(size)); err != nil {
		return nil, err
	}
	if err := format(ctx, f, user); err != nil {
		return nil, err
	}
	loop, err := attachLoop(f)
	if err != nil {
		return nil, err
	}
	defer loop.Close() // it was only opened to be mounted
	return setup.MountDisk(loop.Name())
}

// format makes an ext4 in a file. It has no journal, since it does not outlive a crash, and writes no tables of inodes,
// which are zero in a sparse file.
func format(ctx context.Context, f *os.File, user int) error {
	program, err := mkfs()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode",
		"-E", fmt.Sprintf("lazy_itable_init=1,nodiscard,root_owner=%d:%d", user, user), "/proc/self/fd/3")
	cmd.Env, cmd.Dir, cmd.ExtraFiles = []string{"LC_ALL=C"}, "/", []*os.File{f}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

// mkfs returns the path of mkfs.ext4. The PATH of root may lack its folder.
func mkfs() (string, error) {
	for _, name := range []string{"mkfs.ext4", "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &fumehood.Error{
		Class: fumehood.ErrUnsupported, Err: errors.New("a disk limit of this size needs mkfs.ext4, which is not installed"),
		Hint: "install e2fsprogs, or lower the disk limit to at most 1 GiB and half of the memory limit",
	}
}

// attachTries bounds the attempts to get a loop device that no other process takes first.
const attachTries = 64

// attachLoop makes a file a loop device that the kernel releases after the last use.
func attachLoop(f *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, &fumehood.Error{
			Class: fumehood.ErrUnsupported, Err: fmt.Errorf("a disk limit of this size needs loop devices: %w", err),
			Hint: "load the kernel module loop, or lower the disk limit to at most 1 GiB and half of the memory limit",
		}
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(f.Fd())}      //nolint:gosec // a descriptor
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR        // direct I/O stays off: not every file system has it
	copy(config.Info.File_name[:], "fumehood sandbox") // shown by losetup
	for range attachTries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE) //nolint:gosec // a descriptor
		if err != nil {
			return nil, os.NewSyscallError("get a free loop device", err)
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config) //nolint:gosec // a descriptor
		if err == nil {
			return loop, nil
		}
		_ = loop.Close() // nothing was written
		if !errors.Is(err, unix.EBUSY) {
			return nil, os.NewSyscallError("configure a loop device", err)
		}
	}
	return nil, errors.New("other processes take every free loop device")
}
