package docker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ipv4Settings is the folder of the kernel's settings of this machine's network interfaces.
const ipv4Settings = "/proc/sys/net/ipv4/conf"

// broadcastCheck reports whether broadcasts from sandboxes on an internal network reach programs that listen for them
// on this machine. The host's interface on such a network has no address. The kernel drops packets that arrive on an
// interface without an address if rp_filter is not 0. The effective value is the larger of the settings "all" and
// "default" (Linux, ip-sysctl; verified with Linux 6.18). ok is false if the settings cannot be read.
func broadcastCheck(settings string) (c Check, ok bool) {
	largest := 0
	for _, scope := range []string{"all", "default"} {
		text, err := os.ReadFile(filepath.Join(settings, scope, "rp_filter"))
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
		return Check{Name: "broadcasts", Status: OK, Detail: "broadcasts on internal networks reach no program on this machine"}, true
	}
	return Check{
		Name: "broadcasts", Status: Warn, Detail: "broadcasts on internal networks reach programs that listen on this machine (rp_filter is 0)",
		Hint: "set net.ipv4.conf.all.rp_filter to 1, or to 2 if replies may arrive over other routes",
	}, true
}
