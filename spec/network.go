package spec

import (
	"fmt"
	"strings"

	"github.com/fumehood/fumehood"
)

// EffectiveNetworkMode is the network that a container gets where a spec says mode and Fumehood runs on
// goos: "" is fumehood.NetworkNone, and fumehood.NetworkHost exists on Linux only. Elsewhere it is
// fumehood.NetworkBridge, with a warning to be logged.
func EffectiveNetworkMode(mode, goos string) (effective, warning string) {
	switch {
	case mode == "":
		return fumehood.NetworkNone, ""
	case mode == fumehood.NetworkHost && goos != "linux":
		return fumehood.NetworkBridge, fmt.Sprintf("network: host exists on Linux only; on %s containers get network: bridge", goos)
	}
	return mode, ""
}

// CheckNetwork returns an ErrConfig for a network, as EffectiveNetworkMode takes it, that a file names under the key and that
// no file may choose unless the user allows what is unsafe: any but fumehood.NetworkNone and fumehood.NetworkBridge.
func CheckNetwork(key, mode string) error {
	why := "other containers than the sandbox's are in it, and perhaps the internet"
	switch mode {
	case "", fumehood.NetworkNone, fumehood.NetworkBridge:
		return nil
	case fumehood.NetworkHost:
		why = "it is this machine's own, with what listens on its loopback interface"
	}
	return &fumehood.Error{
		Class: fumehood.ErrConfig, Err: fmt.Errorf("%s: %s: %s", key, mode, why),
		Hint: "use bridge or none, or allow it with AllowUnsafe, --allow-unsafe",
	}
}

// EffectiveAddress is the address that a server in a container has to listen at where address was asked
// for. Under fumehood.NetworkBridge 127.0.0.1, ::1 and localhost are the container's own loopback
// interface, which published ports do not reach: they become 0.0.0.0.
func EffectiveAddress(address, mode string) string {
	if mode == fumehood.NetworkBridge && (address == "127.0.0.1" || address == "::1" || strings.EqualFold(address, "localhost")) {
		return "0.0.0.0"
	}
	return address
}
