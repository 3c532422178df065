package guest

import (
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/wire"
)

// become makes this process the user of the argument --as=USER, and sets HOME, unless there is --home. Without --as it does
// nothing. It returns an exit code.
func become(args []string, stderr io.Writer) int {
	user, asked, home := "", false, true
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "--as="); ok {
			user, asked = name, true
		}
		home = home && arg != "--home"
	}
	if !asked {
		return 0
	}
	dir, err := setup.Become(user)
	if err == nil && home {
		err = os.Setenv("HOME", dir)
	}
	if err == nil {
		return 0
	}
	_, _ = io.WriteString(stderr, "fumehood-guest: become the user "+user+": "+err.Error()+"\n")
	switch {
	case errors.Is(err, files.ErrNoUser):
		return wire.NoSuchUser
	case errors.Is(err, unix.EPERM):
		return wire.NotRoot
	}
	return 1
}

// awaitHost waits until the host has written something, or has left.
func awaitHost(stdin *os.File) {
	fds := []unix.PollFd{{Fd: int32(stdin.Fd()), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for {
		if _, err := unix.Poll(fds, -1); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// install copies this program to the folder of the first argument, where other containers of the same Pod execute it. With
// --no-network it also shuts down the Pod's network interfaces, except for the loopback one. Only a container with
// CAP_NET_ADMIN could start them again. It returns an exit code.
func install(args []string, stderr io.Writer) int {
	err := errors.New("no folder is given")
	if len(args) > 0 {
		err = copySelf(args[0])
	}
	if err == nil && len(args) > 1 && args[1] == "--no-network" {
		err = shutDownNetwork()
	}
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: "+err.Error()+"\n")
		return 1
	}
	return 0
}

// copySelf copies this process's program to a folder. Users other than root can execute the copy, but not read it: what they
// start cannot be traced until it has another program.
func copySelf(dir string) error {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer program.Close()
	out, err := os.OpenFile(dir+"/guest", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o711)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, program)
	return errors.Join(err, out.Chmod(0o711), out.Close())
}

// shutDownNetwork shuts down all network interfaces but the loopback one, and checks that they are down.
func shutDownNetwork() error {
	list, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for line := range strings.Lines(string(list)) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || name == "lo" {
			continue // a heading has no colon
		}
		if err := shutDown(fd, name); err != nil {
			return errors.New("shut down the network interface " + name + ": " + err.Error())
		}
	}
	return nil
}

// shutDown shuts down a network interface.
func shutDown(fd int, name string) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() &^ unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	if ifr.Uint16()&unix.IFF_UP != 0 {
		return errors.New("it is still up")
	}
	return nil
}
