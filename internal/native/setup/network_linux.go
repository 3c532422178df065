package setup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// loopback starts the loopback interface of a new network namespace.
func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr))
}

// Sysctls are the settings of a new network namespace that Docker changes (WithSysctls in daemon/oci_linux.go of moby): each
// user may listen on each port and send ICMP echo requests. The second one names groups, so it is for the first user
// namespace alone, as in Docker.
func Sysctls(userNamespace bool) map[string]string {
	settings := map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}
	if !userNamespace {
		settings["net.ipv4.ping_group_range"] = "0 2147483647"
	}
	return settings
}

// openPorts sets Sysctls. A namespace that is shared has them already.
func openPorts(userNamespace bool) error {
	for name, value := range Sysctls(userNamespace) {
		file := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		now, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || slices.Equal(strings.Fields(string(now)), strings.Fields(value)) {
			continue // the kernel may lack it
		}
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// prohibit makes the kernel refuse, in this network namespace, what is sent to the destinations. Only CAP_NET_ADMIN can
// undo it.
func prohibit(destinations []netip.Prefix) error {
	if len(destinations) == 0 {
		return nil
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	for _, dst := range destinations {
		if err := request(s, prohibition(dst)); err != nil {
			return fmt.Errorf("refuse %v: %w", dst, err)
		}
	}
	return nil
}

// prohibition returns a message of rtnetlink(7) that makes a route of the type "prohibit" to an IPv4 destination.
func prohibition(dst netip.Prefix) []byte {
	const (
		rtmsg     = syscall.NLMSG_HDRLEN
		attribute = rtmsg + syscall.SizeofRtMsg
		size      = attribute + syscall.SizeofRtAttr + 4
	)
	m := make([]byte, size)
	native := binary.NativeEndian
	native.PutUint32(m, size)
	native.PutUint16(m[4:], syscall.RTM_NEWROUTE)
	native.PutUint16(m[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_ACK|syscall.NLM_F_CREATE|syscall.NLM_F_EXCL)
	m[rtmsg], m[rtmsg+1] = syscall.AF_INET, byte(dst.Bits()) //nolint:gosec // at most 32
	m[rtmsg+4], m[rtmsg+5], m[rtmsg+6], m[rtmsg+7] = syscall.RT_TABLE_MAIN, syscall.RTPROT_BOOT, syscall.RT_SCOPE_UNIVERSE, syscall.RTN_PROHIBIT
	native.PutUint16(m[attribute:], syscall.SizeofRtAttr+4)
	native.PutUint16(m[attribute+2:], syscall.RTA_DST)
	addr := dst.Masked().Addr().As4()
	copy(m[attribute+syscall.SizeofRtAttr:], addr[:])
	return m
}

// Confine makes the kernel refuse, in this network namespace, what is sent to the refused destinations, whatever routes there
// are, and by IPv6 everything. Addresses in open are an exception. Only CAP_NET_ADMIN can undo it.
func Confine(refused []netip.Prefix, open []netip.Addr) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	for _, addr := range open {
		if err := request(s, rule(netip.PrefixFrom(addr, addr.BitLen()), true)); err != nil {
			return fmt.Errorf("allow %v: %w", addr, err)
		}
	}
	for _, dst := range refused {
		if err := request(s, rule(dst, false)); err != nil {
			return fmt.Errorf("refuse %v: %w", dst, err)
		}
	}
	if _, err := os.Stat("/proc/net/if_inet6"); errors.Is(err, os.ErrNotExist) { // the kernel has no IPv6
		return nil
	}
	if err := request(s, rule(netip.PrefixFrom(netip.IPv6Unspecified(), 0), false)); err != nil {
		return fmt.Errorf("refuse IPv6: %w", err)
	}
	return nil
}

// rule returns a message of rtnetlink(7) that makes a rule for a destination: to look into the main table, or to refuse. The
// rules come before those that exist, but for that of the local table. The constants are those of linux/fib_rules.h.
func rule(dst netip.Prefix, allowed bool) []byte {
	const (
		header                  = syscall.NLMSG_HDRLEN
		attributes              = header + 12
		fraDst, fraPriority     = 1, 6
		actToTable, actProhibit = 1, 8
		first, second           = 1, 2 // priorities
	)
	native, addr := binary.NativeEndian, dst.Masked().Addr().AsSlice()
	m := make([]byte, attributes, attributes+64)
	native.PutUint16(m[4:], unix.RTM_NEWRULE)
	native.PutUint16(m[6:], syscall.NLM_F_REQUEST|syscall.NLM_F_ACK|syscall.NLM_F_CREATE|syscall.NLM_F_EXCL)
	m[header], m[header+1], m[header+7] = syscall.AF_INET, byte(dst.Bits()), actProhibit //nolint:gosec // at most 128
	if dst.Addr().Is6() {
		m[header] = syscall.AF_INET6
	}
	priority := uint32(second)
	if allowed {
		m[header+4], m[header+7], priority = syscall.RT_TABLE_MAIN, actToTable, first
	}
	attribute := func(kind uint16, value []byte) {
		m = native.AppendUint16(m, uint16(syscall.SizeofRtAttr+len(value))) //nolint:gosec // at most 20
		m = append(native.AppendUint16(m, kind), value...)
	}
	attribute(fraPriority, native.AppendUint32(nil, priority))
	if dst.Bits() > 0 {
		attribute(fraDst, addr)
	}
	native.PutUint32(m, uint32(len(m))) //nolint:gosec // below 100
	return m
}

// request sends a message to the kernel, and waits for its answer.
func request(s int, message []byte) error {
	if err := unix.Sendto(s, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(s, answer, 0)
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return err
	}
	if len(messages) != 1 || messages[0].Header.Type != syscall.NLMSG_ERROR || len(messages[0].Data) < 4 {
		return fmt.Errorf("unexpected answer of %d bytes", n)
	}
	if errno := -int32(binary.NativeEndian.Uint32(messages[0].Data)); errno != 0 { //nolint:gosec // it is signed
		return syscall.Errno(errno) //nolint:gosec // not negative
	}
	return nil
}
