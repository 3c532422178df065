package spec

import (
	"fmt"
	"strings"

	"github.com/fumehood/fumehood"
)

// EffectiveNetworkMode returns the network of a container for a spec's mode when Fumehood runs on goos. "" means
// fumehood.NetworkNone. fumehood.NetworkHost exists only on Linux; elsewhere it becomes fumehood.NetworkBridge,
// with a warning to be logged.
func EffectiveNetworkMode(mode, goos string) (effective, warning string) {
	switch {
	case mode == "":
		return fumehood.NetworkNone, ""
	case mode == fumehood.NetworkHost && goos != "linux":
		return fumehood.NetworkBridge, fmt.Sprintf("network: host exists on Linux only; on %s containers get network: bridge", goos)
	}
	return mode, ""
}

// CheckNetwork returns an ErrFile for a network that a file may choose only if the user allows what is unsafe:
// any but fumehood.NetworkNone and fumehood.NetworkBridge. Mode is as in EffectiveNetworkMode, and key is the
// file's key for it.
func CheckNetwork(key, mode string) error {
	why := "other containers are in it, and it may reach the internet"
	switch mode {
	case "", fumehood.NetworkNone, fumehood.NetworkBridge:
		return nil
	case fumehood.NetworkHost:
		why = "it is this machine's own network, with the services on its loopback interface"
	}
	return &fumehood.Error{
		Class: fumehood.ErrFile, Err: fmt.Errorf("%s: %s: %s", key, mode, why),
		Hint: "use bridge or none, or allow it (--allow-unsafe)",
	}
}

// EffectiveAddress returns the address at which a server in a container must listen when address was requested.
// Under fumehood.NetworkBridge 127.0.0.1, ::1 and localhost become 0.0.0.0: they are on the container's own
// loopback interface, which published ports do not reach.
func EffectiveAddress(address, mode string) string {
	if mode == fumehood.NetworkBridge && (address == "127.0.0.1" || address == "::1" || strings.EqualFold(address, "localhost")) {
		return "0.0.0.0"
	}
	return address
}
