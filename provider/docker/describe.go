package docker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// describing are the labels that say what a sandbox is for. All are set, as Provider.labels has it.
func describing(info fumehood.Info) map[string]string {
	l := map[string]string{
		owner.LabelTask: info.Sample.Task, owner.LabelSample: info.Sample.ID, owner.LabelEpoch: "",
		owner.LabelConfig: info.ConfigFile, owner.LabelEnv: strings.Join(info.EnvNames, ","), owner.LabelUnenforced: strings.Join(info.Unenforced, ","),
	}
	if info.Sample.Epoch > 0 {
		l[owner.LabelEpoch] = strconv.Itoa(info.Sample.Epoch)
	}
	return l
}

// described is what labels say of a sandbox.
func described(labels map[string]string) fumehood.Info {
	info := fumehood.Info{
		Sample:     fumehood.Sample{Task: labels[owner.LabelTask], ID: labels[owner.LabelSample]},
		ConfigFile: labels[owner.LabelConfig],
	}
	info.Sample.Epoch, _ = strconv.Atoi(labels[owner.LabelEpoch]) // 0 where there is none
	if names := labels[owner.LabelEnv]; names != "" {
		info.EnvNames = strings.Split(names, ",")
	}
	if limits := labels[owner.LabelUnenforced]; limits != "" {
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
