package docker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/engine"
)

// describing are the labels that say what a sandbox is for. All are set, as Provider.labels has it.
func describing(info fumehood.Info) map[string]string {
	l := map[string]string{
		engine.LabelTask: info.Sample.Task, engine.LabelSample: info.Sample.ID, engine.LabelEpoch: "",
		engine.LabelConfig: info.ConfigFile, engine.LabelEnv: strings.Join(info.EnvNames, ","), engine.LabelUnenforced: strings.Join(info.Unenforced, ","),
	}
	if info.Sample.Epoch > 0 {
		l[engine.LabelEpoch] = strconv.Itoa(info.Sample.Epoch)
	}
	return l
}

// described is what labels say of a sandbox.
func described(labels map[string]string) fumehood.Info {
	info := fumehood.Info{
		Sample:     fumehood.Sample{Task: labels[engine.LabelTask], ID: labels[engine.LabelSample]},
		ConfigFile: labels[engine.LabelConfig],
	}
	info.Sample.Epoch, _ = strconv.Atoi(labels[engine.LabelEpoch]) // 0 where there is none
	if names := labels[engine.LabelEnv]; names != "" {
		info.EnvNames = strings.Split(names, ",")
	}
	if limits := labels[engine.LabelUnenforced]; limits != "" {
		info.Unenforced = strings.Split(limits, ",")
	}
	return info
}

// recordNetwork takes down which network the sandbox was given, and which of its ports are to be reached.
func (sb *sandbox) recordNetwork() {
	n := fumehood.Networking{Network: sb.spec.Network, Egress: fumehood.NetworkNone, Ports: map[string][]fumehood.Port{}}
	switch {
	case sb.loaded != nil && sb.loaded.Internal():
		n.Network = "internal"
	case sb.loaded != nil:
		n.Network, n.Egress = "project", fumehood.EgressInternet
	case n.Network == "":
		n.Network = fumehood.NetworkNone
	case n.Network == fumehood.NetworkBridge, n.Network == fumehood.NetworkHost:
		n.Egress = fumehood.EgressInternet
	case n.Network != fumehood.NetworkNone:
		n.Egress = "unknown"
	}
	for _, subnet := range sb.subnets {
		n.Subnets = append(n.Subnets, subnet.String())
	}
	for _, s := range sb.services {
		n.Ports[s.Name] = slices.Concat(s.Ports, s.Service.Forward)
	}
	sb.spec.Recorder().Network(n)
}
