package spec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fumehood/fumehood"
)

// Port publishes a port of the container on the loopback interface of the host only.
type Port struct {
	Host      uint16 // 0 means a free port that the daemon chooses
	Container uint16
}

// Ports are the published ports of a spec.
type Ports []Port

// MergePorts merges the spec's ports and those given at spawn. A port given at spawn replaces the spec's for the
// same container port, and for the same host port unless that is 0. Mode is the effective network. With
// fumehood.NetworkHost nothing is published, and note reports that for the log. Ports without a network, wrong
// ports, and one host port for two container ports are a fumehood.ErrConfig.
func MergePorts(mode string, spec, spawn Ports) (ports Ports, note string, err error) {
	for _, p := range spec {
		if !slices.ContainsFunc(spawn, func(s Port) bool {
			return s.Container == p.Container || s.Host != 0 && s.Host == p.Host
		}) {
			ports = append(ports, p)
		}
	}
	ports = append(ports, spawn...)
	if len(ports) == 0 {
		return nil, "", nil
	}
	bad := func(cause error, hint string) (Ports, string, error) {
		class := fumehood.ErrConfig
		if len(spawn) == 0 {
			class = fumehood.ErrFile
		}
		return nil, "", &fumehood.Error{Op: "publish ports", Class: class, Err: cause, Hint: hint}
	}
	taken := map[uint16]bool{}
	for _, p := range ports {
		if p.Container == 0 {
			return bad(fmt.Errorf("host port %d is published for container port 0", p.Host), "")
		}
		if p.Host != 0 && taken[p.Host] {
			return bad(fmt.Errorf("host port %d is published for two container ports", p.Host), "")
		}
		taken[p.Host] = true
	}
	switch mode {
	case "", fumehood.NetworkNone:
		return bad(errors.New("publishing ports needs a network"), "use network: bridge")
	case fumehood.NetworkHost:
		return nil, "with network: host the ports are ignored: programs listen on the host itself", nil
	}
	return ports, "", nil
}
