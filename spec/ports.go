package spec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fumehood/fumehood"
)

// Port publishes a port of the container on the loopback interface of the host, and nowhere else.
type Port struct {
	Host      uint16 // 0: a free one, which the daemon chooses
	Container uint16
}

// Ports are the ports that a spec publishes.
type Ports []Port

// MergePorts decides which ports are published: the spec's and those given at spawn. One given at spawn
// replaces the spec's for the same container port, and for the same host port unless that is 0. Mode is
// the network in effect. With fumehood.NetworkHost nothing is published and note says so, to be logged.
// Without a network, wrong ports, or one host port for two are a fumehood.ErrConfig.
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
		return nil, "", &fumehood.Error{Op: "publish ports", Class: fumehood.ErrConfig, Err: cause, Hint: hint}
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
		return bad(errors.New("without a network no port can be published"), "use network: bridge")
	case fumehood.NetworkHost:
		return nil, "with network: host the ports are ignored: programs listen on the host itself", nil
	}
	return ports, "", nil
}
