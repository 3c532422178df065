package guest

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// talk copies datagrams between the stream and a UDP port, in both directions.
func (g *guest) talk(s *wire.Stream, req *wire.Talk) {
	socket, err := talkTo(req)
	if !connected(s, err) {
		return
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		defer s.Close()
		for {
			datagram, err := nextDatagram(socket)
			if err != nil {
				return
			}
			if packed, err := wire.AppendDatagram(nil, datagram); err != nil || s.Send(wire.Stdout, packed) != nil {
				return
			}
		}
	}()
	sent := bufio.NewReader(content(s))
	for {
		datagram, err := wire.ReadDatagram(sent)
		if err != nil {
			break
		}
		// A datagram that cannot be sent is lost. ECONNREFUSED reports that an earlier one was refused. This one was
		// not sent, so it is sent again.
		if _, err := socket.Write(datagram); errors.Is(err, unix.ECONNREFUSED) {
			_, _ = socket.Write(datagram)
		}
	}
	_ = socket.SetReadDeadline(time.Now()) // the host does not read any further datagrams
	<-received
	_ = socket.Close()
}

// nextDatagram waits for a datagram. It ignores ECONNREFUSED, since the program may be back for the next datagram.
func nextDatagram(socket *os.File) (datagram []byte, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var rerr error
	err = raw.Read(func(fd uintptr) bool { // called again on every event
		for {
			var size int
			if size, _, rerr = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_TRUNC); rerr == nil {
				datagram = make([]byte, size) // allocated at the exact size, since it counts against the container's memory limit
				size, _, rerr = unix.Recvfrom(int(fd), datagram, 0)
				datagram = datagram[:max(size, 0)]
			}
			switch {
			case errors.Is(rerr, unix.EAGAIN):
				return false
			case !errors.Is(rerr, unix.EINTR) && !errors.Is(rerr, unix.ECONNREFUSED):
				return true
			}
		}
	})
	return datagram, cmp.Or(err, rerr)
}

// talkTo connects a socket to the first address at which a program receives datagrams. Connecting alone does not show
// that, since the kernel connects a UDP socket to any address.
func talkTo(req *wire.Talk) (*os.File, error) {
	var bound []netip.Addr
	for _, table := range []string{"/proc/self/net/udp", "/proc/self/net/udp6"} {
		f, err := os.Open(table)
		if errors.Is(err, fs.ErrNotExist) { // missing without IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := boundAddrs(f, req.Port)
		_ = f.Close() // opened for reading only
		if err != nil {
			return nil, err
		}
		bound = append(bound, found...)
	}
	for _, a := range req.Addresses {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(bound, func(b netip.Addr) bool { return takesAt(b, addr) }) {
			return connect(netip.AddrPortFrom(addr, req.Port), unix.SOCK_DGRAM)
		}
	}
	return nil, fmt.Errorf("no program receives datagrams at port %d of %s", req.Port, strings.Join(req.Addresses, ", "))
}

// takesAt reports whether a socket bound to one address receives datagrams sent to another.
func takesAt(bound, addr netip.Addr) bool {
	return bound == addr || bound.IsUnspecified() && (bound.Is6() || addr.Is4())
}

// boundAddrs returns the addresses at which sockets receive datagrams from any peer at a port. table is the kernel's
// table of UDP sockets.
func boundAddrs(table io.Reader, port uint16) (all []netip.Addr, err error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // number, local address, remote address ...
		if len(fields) < 3 || !strings.HasSuffix(fields[2], ":0000") {
			continue
		}
		text, p, _ := strings.Cut(fields[1], ":")
		words, err := hex.DecodeString(text)
		if n, perr := strconv.ParseUint(p, 16, 16); err != nil || perr != nil || uint16(n) != port || len(words)%4 != 0 {
			continue
		}
		for i := 0; i < len(words); i += 4 { // each word is in the machine's byte order
			binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
		}
		if addr, ok := netip.AddrFromSlice(words); ok {
			all = append(all, addr.Unmap())
		}
	}
	return all, lines.Err()
}
