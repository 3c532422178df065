package hostnet

import (
	"encoding/binary"
	"net/netip"
	"syscall"
)

// Routes returns this machine's routes in all tables, which include its own addresses.
func Routes() ([]Route, error) {
	answer, err := syscall.NetlinkRIB(syscall.RTM_GETROUTE, syscall.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	return parse(answer)
}

// parse returns the routes of an answer in the kernel's format (rtnetlink(7)).
func parse(answer []byte) ([]Route, error) {
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return nil, err
	}
	var all []Route
	for _, m := range messages {
		if m.Header.Type != syscall.RTM_NEWROUTE || len(m.Data) < syscall.SizeofRtMsg {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, err
		}
		if r, ok := routeOf(m.Data, attributes); ok {
			all = append(all, r)
		}
	}
	return all, nil
}

// routeOf returns the route of a struct rtmsg and its attributes. ok is false for what is not of IP.
func routeOf(rtmsg []byte, attributes []syscall.NetlinkRouteAttr) (r Route, ok bool) {
	family, length, kind := rtmsg[0], int(rtmsg[1]), rtmsg[7]
	dst := netip.IPv4Unspecified()
	switch family {
	case syscall.AF_INET:
	case syscall.AF_INET6:
		dst = netip.IPv6Unspecified()
	default:
		return r, false
	}
	r.Local, r.Direct = kind == syscall.RTN_LOCAL, kind == syscall.RTN_UNICAST
	for _, a := range attributes {
		switch a.Attr.Type {
		case syscall.RTA_DST:
			if dst, ok = netip.AddrFromSlice(a.Value); !ok {
				return r, false
			}
		case syscall.RTA_OIF:
			if len(a.Value) == 4 {
				r.Device = int(binary.NativeEndian.Uint32(a.Value))
			}
		case syscall.RTA_GATEWAY, rtaVia, syscall.RTA_MULTIPATH:
			r.Direct = false
		}
	}
	r.Dst = netip.PrefixFrom(dst, length)
	return r, r.Dst.IsValid()
}

// rtaVia is RTA_VIA, a gateway of another address family.
const rtaVia = 18
