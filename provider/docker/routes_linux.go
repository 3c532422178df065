package docker

import (
	"net/netip"
	"syscall"
)

// hostRoutes returns the destinations of this machine's routes in all tables, which include its own addresses. It
// returns nil if they cannot be read.
func hostRoutes() []netip.Prefix {
	answer, err := syscall.NetlinkRIB(syscall.RTM_GETROUTE, syscall.AF_UNSPEC)
	if err != nil {
		return nil
	}
	return parseRoutes(answer)
}

// parseRoutes returns the destinations of routes in the kernel's format (rtnetlink(7)).
func parseRoutes(answer []byte) []netip.Prefix {
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return nil
	}
	var all []netip.Prefix
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWROUTE || len(m.Data) < syscall.SizeofRtMsg {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			continue
		}
		length := int(m.Data[1]) // of rtmsg, the length of the destination
		for _, a := range attributes {
			if a.Attr.Type != syscall.RTA_DST {
				continue
			}
			if addr, ok := netip.AddrFromSlice(a.Value); ok && length <= addr.BitLen() {
				all = append(all, netip.PrefixFrom(addr, length))
			}
		}
	}
	return all
}
