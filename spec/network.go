package spec

import (
	"fmt"
	"strings"

	"github.com/lazaret/lazaret"
)

// EffectiveNetworkMode is the network that a container gets where a spec says mode and Lazaret runs on
// goos: "" is lazaret.NetworkNone, and lazaret.NetworkHost exists on Linux only. Elsewhere it is
// lazaret.NetworkBridge, with a warning to be logged.
func EffectiveNetworkMode(mode, goos string) (effective, warning string) {
	switch {
	case mode == "":
		return lazaret.NetworkNone, ""
	case mode == lazaret.NetworkHost && goos != "linux":
		return lazaret.NetworkBridge, fmt.Sprintf("network: host exists on Linux only; on %s containers get network: bridge", goos)
	}
	return mode, ""
}

// EffectiveAddress is the address that a server in a container has to listen at where address was asked
// for. Under lazaret.NetworkBridge 127.0.0.1, ::1 and localhost are the container's own loopback
// interface, which published ports do not reach: they become 0.0.0.0.
func EffectiveAddress(address, mode string) string {
	if mode == lazaret.NetworkBridge && (address == "127.0.0.1" || address == "::1" || strings.EqualFold(address, "localhost")) {
		return "0.0.0.0"
	}
	return address
}
