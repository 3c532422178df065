package guest

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/wire"
)

// become makes this process the user of the argument --as=USER, and sets HOME, unless there is --home. Before that it removes
// the variables of --unset=NAME, and creates the folders of --folder=PATH. It returns an exit code.
func become(args []string, stderr io.Writer) int {
	user, asked, home := "", false, true
	for _, arg := range args {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "--as":
			user, asked = value, true
		case "--home":
			home = false
		case "--unset":
			_ = os.Unsetenv(value) // never an error
		case "--folder":
			if err := os.MkdirAll(value, 0o755); err != nil { //nolint:gosec // as an Engine creates volumes
				_, _ = io.WriteString(stderr, "fumehood-guest: "+err.Error()+"\n")
				return 1
			}
		}
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

// install prepares a Pod; see prepare. It returns an exit code.
func install(args []string, stderr io.Writer) int {
	err := errors.New("no folder is given")
	if len(args) > 0 {
		err = prepare(args[0], args[1:])
	}
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: "+err.Error()+"\n")
		return 1
	}
	return 0
}

// prepare copies this program to a folder, where other containers of the same Pod execute it. With --no-network it also shuts
// down the Pod's network interfaces, except for the loopback one. With --refuse=DESTINATION, for each one, the Pod can send
// only to other destinations, and to its name servers. Only a container with CAP_NET_ADMIN could undo that. With --hosts=TEXT,
// for each one, it writes a file hosts0, hosts1 and so on to the folder.
func prepare(dir string, args []string) error {
	if err := copySelf(dir); err != nil {
		return err
	}
	var refused []netip.Prefix
	files := 0
	for _, arg := range args {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "--no-network":
			if err := shutDownNetwork(); err != nil {
				return err
			}
		case "--refuse":
			dst, err := netip.ParsePrefix(value)
			if err != nil {
				return err
			}
			refused = append(refused, dst)
		case "--hosts":
			if err := os.WriteFile(dir+"/hosts"+strconv.Itoa(files), []byte(value), 0o644); err != nil { //nolint:gosec // for all users
				return err
			}
			files++
		default:
			return errors.New("unknown argument " + arg)
		}
	}
	if refused == nil {
		return nil
	}
	servers, err := nameServers()
	if err != nil {
		return err
	}
	return setup.Confine(refused, servers)
}

// nameServers returns the IPv4 addresses of the Pod's name servers.
func nameServers() (all []netip.Addr, err error) {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "nameserver" {
			if addr, err := netip.ParseAddr(words[1]); err == nil && addr.Is4() && !addr.IsLoopback() {
				all = append(all, addr)
			}
		}
	}
	return slices.Compact(all), nil
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
