package docker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ipv4Settings are the kernel's of the network interfaces of this machine.
const ipv4Settings = "/proc/sys/net/ipv4/conf"

// broadcastCheck tells whether datagrams to all, which a sandbox sends on an internal network, reach programs of this machine
// that listen for them. The kernel drops what comes in by an interface without an address, as the host's is there, where
// rp_filter is not 0: the larger of that of all interfaces and that which new ones get. See ip-sysctl of Linux; it was tried
// with Linux 6.18. Without the settings there is nothing to tell.
func broadcastCheck(settings string) (c Check, ok bool) {
	largest := 0
	for _, of := range []string{"all", "default"} {
		text, err := os.ReadFile(filepath.Join(settings, of, "rp_filter"))
		if err != nil {
			return Check{}, false
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return Check{}, false
		}
		largest = max(largest, n)
	}
	if largest > 0 {
		return Check{Name: "broadcasts", Status: OK, Detail: "those of internal networks reach no program of this machine"}, true
	}
	return Check{
		Name: "broadcasts", Status: Warn, Detail: "those of internal networks reach programs of this machine that listen for them (rp_filter is 0)",
		Hint: "set net.ipv4.conf.all.rp_filter to 1, or to 2 where answers may come by other ways",
	}, true
}
