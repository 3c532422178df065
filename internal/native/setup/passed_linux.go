package setup

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// passes returns the number of mounts that the host sends.
func (r Root) passes() (n int) {
	if len(r.Sizes) == 0 {
		n = len(r.Volumes)
	}
	if r.Passed {
		n += r.files()
	}
	if r.OnDisk {
		n++
	}
	return n
}

// takeDisk takes the mount of the writable layer out of those that the host has sent.
func (r *Root) takeDisk(passed []mount) (others []mount) {
	if r.OnDisk {
		r.disk, passed = passed[0], passed[1:]
	}
	return passed
}

// files returns the number of mounts that Pass sends.
func (r Root) files() int {
	n := len(r.Layers) + 1 + len(r.Mounts)
	if r.Sockets != "" {
		n++
	}
	return n
}

// unpack returns what the host has sent, in the order of Pass.
func (r Root) unpack(passed []mount) (s sources, err error) {
	if len(passed) != r.files() {
		return s, fmt.Errorf("%d mounts received, want %d", len(passed), r.files())
	}
	n := len(r.Layers)
	s.layers, s.guest, passed = passed[:n:n], passed[n], passed[n+1:]
	if r.Sockets != "" {
		s.sockets, passed = passed[0], passed[1:]
	}
	s.binds = passed
	return s, nil
}

// Pass sends mounts of the layers, the guest's folder, the sockets and the user's mounts to a process that waits for them
// after its Config. It needs root on the host. send sends a descriptor with one byte. userns is a descriptor of the
// process's user namespace: the owner of a file is the user with the same id there. A file system that cannot map ids is
// an error.
func (r Root) Pass(send func(fd int) error, userns int) (err error) {
	s, err := r.openFiles()
	defer func() { s.close() }()
	if err != nil {
		return err
	}
	for _, folder := range r.Layers {
		m, err := clone(folder)
		if err != nil {
			return err
		}
		s.layers = append(s.layers, m)
		if err := m.restrict(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY); err != nil {
			return err
		}
	}
	mapped := slices.Concat(s.layers, s.binds)
	if r.Sockets != "" {
		mapped = append(mapped, s.sockets)
	}
	for _, m := range mapped {
		if err := m.mapIDs(userns); err != nil {
			return err
		}
	}
	all := append(slices.Clone(s.layers), s.guest)
	if r.Sockets != "" {
		all = append(all, s.sockets)
	}
	for _, m := range append(all, s.binds...) {
		if err := send(m.fd); err != nil {
			return err
		}
	}
	return nil
}

// openDevices makes mounts of the host's device nodes.
func (s *sources) openDevices() error {
	s.devices = map[string]mount{}
	for _, d := range devices {
		m, err := clone("/dev/" + d.name)
		if err != nil {
			return err
		}
		s.devices[d.name] = m
		// The node is the host's. This protects only its mode and owner.
		if err := m.restrict(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

// mapIDs maps the owners of files to a user namespace.
func (m mount) mapIDs(userns int) error {
	err := unix.MountSetattr(m.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns), //nolint:gosec // not negative
	})
	if errors.Is(err, unix.EINVAL) {
		return &failure{FaultMount, fmt.Errorf("the file system of %s cannot map user ids", m.name)}
	}
	return os.NewSyscallError("mount_setattr", err)
}

// receiveMounts receives n mounts of the host.
func receiveMounts(conn *os.File, n int) (all []mount, _ error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	for range n {
		fd, rerr := 0, error(nil)
		err := raw.Read(func(socket uintptr) bool {
			fd, rerr = receiveFD(int(socket))
			return !errors.Is(rerr, unix.EAGAIN)
		})
		if err := errors.Join(err, rerr); err != nil {
			return nil, err
		}
		all = append(all, mount{"of the host", fd})
	}
	return all, nil
}

// sendFDs sends descriptors, each one with one byte, and closes them.
func sendFDs(conn *os.File, all []int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	for _, fd := range all {
		var serr error
		err := raw.Write(func(socket uintptr) bool {
			serr = unix.Sendmsg(int(socket), []byte{0}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
			return !errors.Is(serr, unix.EAGAIN)
		})
		_ = unix.Close(fd) // nothing was written
		if err := errors.Join(err, serr); err != nil {
			return err
		}
	}
	return nil
}

// receiveFD receives one descriptor with one byte.
func receiveFD(socket int) (int, error) {
	var data [1]byte
	control := make([]byte, unix.CmsgSpace(4))
	_, size, _, _, err := unix.Recvmsg(socket, data[:], control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(errors.New("no descriptor received"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.Join(errors.New("no descriptor received"), err)
	}
	return fds[0], nil
}
