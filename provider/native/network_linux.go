//go:build amd64 || arm64

package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	devices "github.com/opencontainers/cgroups/devices/config"
	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/internal/hostnet"
	"github.com/fumehood/fumehood/internal/native/setup"
)

// helper is the program that connects a sandbox to the outside. It reads the packets that the sandbox sends, and makes
// connections of its own, from the host's addresses. Nothing of the host's network changes.
const helper = "slirp4netns"

// NetworkHelper returns the path of the program that sandboxes with a network need, slirp4netns. Without it the error
// is an ErrUnsupported that names the package. Without root, the device /dev/net/tun must be accessible too.
func NetworkHelper() (string, error) {
	if err := unix.Access(tunnels, unix.R_OK|unix.W_OK); err != nil && rootless() {
		return "", &fumehood.Error{
			Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: &os.PathError{Op: "access", Path: tunnels, Err: err},
			Hint: "run `modprobe tun` and `chmod 666 " + tunnels + "` as root, in a container add the device (Docker's --device " + tunnels + "), or use no network",
		}
	}
	path, err := exec.LookPath(helper)
	if err == nil {
		path, err = filepath.EvalSymlinks(path) // /run is hidden
	}
	if err != nil {
		return "", &fumehood.Error{
			Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("a network needs the program %s: %w", helper, err),
			Hint: "install the package " + helper + ", or use no network",
		}
	}
	return path, nil
}

// tunnels is the device by which the helper makes the interface.
const tunnels = "/dev/net/tun"

// Addresses in a sandbox with a network. They are in a range that is the sandboxes' anyway.
var (
	subnet   = netip.MustParsePrefix("10.201.0.0/24")
	address  = netip.MustParseAddr("10.201.0.100") // of the sandbox, as helper chooses it
	gateway  = netip.MustParseAddr("10.201.0.2")   // the helper's
	resolver = netip.MustParseAddr("10.201.0.3")   // helper passes on what is sent there to the host's name server
)

const (
	// interfaceName is the name of the network interface in a sandbox.
	interfaceName = "eth0"
	// mtu is the size of packets, which do not leave the host. Larger ones cost fewer system calls.
	mtu = 65520
	// mostFlows limits the helper's descriptors, one for each connection and each socket that sends datagrams. Otherwise a
	// sandbox could use up the host's ports.
	mostFlows = 1024
	// connectWithin bounds the start of the helper, which normally takes some milliseconds.
	connectWithin = 10 * time.Second
)

// network connects the network namespace of a sandbox to the outside, by a process of the host.
type network struct {
	program    string
	prohibited []netip.Prefix
	// The helper has the reader of a pipe, and ends when the writer is closed. The first process in the network
	// namespace has the writer. So the helper ends with it, whatever happens to this process.
	reader, writer *os.File

	cmd    *exec.Cmd
	stderr *ring.Tail
	ended  chan struct{} // closed when the helper has ended; nil before it starts
}

// newNetwork returns a network that does not exist yet.
func newNetwork() (*network, error) {
	program, err := NetworkHelper()
	if err != nil {
		return nil, err
	}
	routes, err := hostnet.Routes()
	if err != nil {
		return nil, fmt.Errorf("read the host's routes: %w", err)
	}
	n := &network{program: program, prohibited: prohibitedNets(routes), stderr: ring.NewTail(complaint)}
	n.reader, n.writer, err = os.Pipe()
	return n, err
}

// prohibitedNets returns what a sandbox with a network must not reach. The helper connects from the host's addresses, so
// without this a sandbox could reach what only the host can: its own services, and other sandboxes.
func prohibitedNets(routes []hostnet.Route) []netip.Prefix {
	all := append(slices.Clone(hostnet.Pools),
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"),
		netip.MustParsePrefix("169.254.0.0/16"), // metadata of clouds
		netip.MustParsePrefix("224.0.0.0/3"),    // several receivers
	)
	outward := map[int]bool{} // interfaces of the default routes
	for _, r := range routes {
		if r.Dst.Bits() == 0 && !r.Local && r.Device != 0 {
			outward[r.Device] = true
		}
	}
	for _, r := range routes {
		if r.Dst.Addr().Is4() && r.Dst.Bits() > 0 && (r.Local || r.Direct && !outward[r.Device]) {
			all = append(all, r.Dst.Masked())
		}
	}
	// The helper refuses what is sent to its own subnet, where it is the gateway.
	all = slices.DeleteFunc(all, func(p netip.Prefix) bool { return p.Bits() >= subnet.Bits() && p.Overlaps(subnet) })
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// allow lets the helper, which is in the sandbox's control group, make the interface. A sandbox has no such device
// node, and cannot make one.
func (n *network) allow(group cgroup) error {
	if rootless() || group.Manager == nil || group.above != nil {
		return nil // such groups restrict no devices
	}
	config, err := group.GetCgroups()
	if err != nil {
		return err
	}
	config.Devices = append(config.Devices, &devices.Rule{Type: devices.CharDevice, Major: 10, Minor: 200, Permissions: "rw", Allow: true})
	return nil
}

// connect starts the helper in a control group, and waits until it has made the interface. init is the first process in
// the network namespace, and has the writer.
func (n *network) connect(ctx context.Context, init *process, group cgroup) error {
	_ = n.writer.Close() // nothing was written
	defer n.reader.Close()
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", init.child))
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := stillRuns(init); err != nil {
		return err
	}
	if !rootless() {
		if err := makeInterface(namespace); err != nil {
			return fmt.Errorf("make the network interface: %w", err)
		}
	}
	ready, helperEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	n.cmd = &exec.Cmd{
		Path: n.program, Env: []string{}, Dir: "/", Stderr: n.stderr, WaitDelay: time.Second,
		Args: []string{
			helper, "--configure", "--mtu=" + strconv.Itoa(mtu), "--cidr=" + subnet.String(), "--disable-host-loopback",
			"--enable-sandbox", "--enable-seccomp", "--ready-fd=4", "--exit-fd=5",
		},
		ExtraFiles: []*os.File{namespace, helperEnd, n.reader},
		// The helper reads what the sandbox sends. If that took it over, it would see no other process.
		SysProcAttr: &unix.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC},
	}
	before := hideFiles
	if rootless() {
		// It has rights only in the sandbox's user namespace. With a path it would not join that for its own sandbox.
		n.cmd.Args = append(n.cmd.Args, "--netns-type=pid", strconv.Itoa(init.pid))
		n.cmd.SysProcAttr.Cloneflags, before = 0, nil
	} else {
		n.cmd.Args = append(n.cmd.Args, "--netns-type=path", "/proc/self/fd/3")
	}
	n.cmd.Args = append(n.cmd.Args, interfaceName)
	err = startIn(group, n.cmd, capabilitySet(), before)
	_ = helperEnd.Close()
	if n.cmd.Process == nil {
		return fmt.Errorf("start %s: %w", helper, err)
	}
	limit := unix.Rlimit{Cur: mostFlows, Max: mostFlows}
	err = errors.Join(err, os.NewSyscallError("prlimit", unix.Prlimit(n.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil)))
	n.ended = make(chan struct{})
	go func() {
		defer close(n.ended)
		_ = n.cmd.Wait() // ProcessState has the result
	}()
	if err != nil {
		return err
	}
	if err := n.await(ctx, ready); err != nil {
		return err
	}
	return stillRuns(init)
}

// makeInterface makes the interface in a network namespace, for the helper. Only what is for the helper or for everybody leaves
// it. No route keeps a program from sending to several receivers if it chooses the interface (IP_MULTICAST_IF), and the
// helper would send that from the host, whose programs receive it.
func makeInterface(namespace *os.File) error {
	return setup.InThread(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil { //nolint:gosec // a descriptor
			return os.NewSyscallError("setns", err)
		}
		// No process starts meanwhile: until it has executed its program, it would have the interface open, and the
		// helper's attempt to open it would fail (EBUSY).
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		fd, err := openInterface()
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		receivers := struct { // struct tun_filter
			flags, count uint16
			addr         [3][6]byte
		}{count: 3, addr: [3][6]byte{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ethernet(gateway), ethernet(resolver)}}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETTXFILTER, uintptr(unsafe.Pointer(&receivers))); errno != 0 {
			return os.NewSyscallError("ioctl", errno)
		}
		return os.NewSyscallError("ioctl", unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)) // it ends with its namespace
	})
}

// openInterface opens the interface of the calling thread's network namespace, and makes it if it does not exist.
func openInterface() (fd int, err error) {
	fd, err = unix.Open(tunnels, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: tunnels, Err: err}
	}
	ifr, err := unix.NewIfreq(interfaceName)
	if err == nil {
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = os.NewSyscallError("ioctl", unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr))
	}
	if err != nil {
		_ = unix.Close(fd) // err is the first one
		return -1, err
	}
	return fd, nil
}

// ethernet returns the hardware address that the helper has for one of its own addresses.
func ethernet(ip netip.Addr) (hardware [6]byte) {
	copy(hardware[:], []byte{0x52, 0x55})
	copy(hardware[2:], ip.AsSlice())
	return hardware
}

// stillRuns returns an error if the first process has ended, so that another one may have its number.
func stillRuns(init *process) error {
	return os.NewSyscallError("pidfd_send_signal", unix.PidfdSendSignal(int(init.pidfd.Fd()), 0, nil, 0)) //nolint:gosec // a descriptor
}

// hideFiles gives the calling thread, and what it starts, a mount namespace in which /etc has only resolv.conf, and
// /run has nothing. The helper keeps these two folders. It is root, so it could read keys in them, and connect to
// sockets.
func hideFiles() error {
	resolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	for _, dir := range []string{"/etc", "/run"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=1m,mode=0755"); err != nil {
			return &os.PathError{Op: "mount", Path: dir, Err: err}
		}
	}
	return os.WriteFile("/etc/resolv.conf", resolv, 0o644) //nolint:gosec // every user may read it
}

// await waits until the helper has made the interface.
func (n *network) await(ctx context.Context, ready *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Now()) })()
	if _, err := ready.Read(make([]byte, 1)); err == nil {
		return nil
	}
	select {
	case <-n.ended:
		return fmt.Errorf("%s: %s%s", helper, n.cmd.ProcessState, lastOutput(n.stderr))
	case <-ctx.Done():
		return fmt.Errorf("%s has not made the network: %w%s", helper, ctx.Err(), lastOutput(n.stderr))
	}
}

// pid returns the helper's number; 0 if this process has not started it.
func (n *network) pid() int {
	if n == nil || n.ended == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// checkHelper returns an error if the helper has ended. A sandbox without a network has none.
func (n *network) checkHelper() error {
	if n == nil || n.ended == nil {
		return nil
	}
	select {
	case <-n.ended:
		return &fumehood.Error{
			Class: fumehood.ErrBroken, Err: fmt.Errorf("the sandbox has lost its network: %s: %s%s", helper, n.cmd.ProcessState, lastOutput(n.stderr)),
			Hint: "start a new sandbox",
		}
	default:
		return nil
	}
}

// close ends the helper. It may be called again, and without a network.
func (n *network) close() error {
	if n == nil {
		return nil
	}
	_, _ = n.reader.Close(), n.writer.Close() // may be closed
	if n.ended == nil {
		return nil
	}
	_ = n.cmd.Process.Kill() // may have ended
	t := time.NewTimer(endWithin)
	defer t.Stop()
	select {
	case <-n.ended:
		return nil
	case <-t.C:
		return errors.New(helper + " has not ended after SIGKILL")
	}
}
