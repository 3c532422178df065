package docker

import (
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
)

// describing returns the labels that describe a sandbox. It sets all labels that Fumehood defines, as sandbox.labels
// does. User labels inherited from an image do not count, because no seal covers them.
func describing(info fumehood.Info) map[string]string {
	l := map[string]string{
		owner.LabelConfig: info.ConfigFile, owner.LabelEnv: strings.Join(info.EnvNames, ","), owner.LabelUnenforced: strings.Join(info.Unenforced, ","),
	}
	for name, value := range info.Labels {
		l[owner.LabelUser+name] = value
	}
	return l
}

// infoFromLabels returns the description of a sandbox from its labels.
func infoFromLabels(labels map[string]string) fumehood.Info {
	info := fumehood.Info{ConfigFile: labels[owner.LabelConfig]}
	for label, value := range labels {
		if name, ok := strings.CutPrefix(label, owner.LabelUser); ok {
			if info.Labels == nil {
				info.Labels = map[string]string{}
			}
			info.Labels[name] = value
		}
	}
	if names := labels[owner.LabelEnv]; names != "" {
		info.EnvNames = strings.Split(names, ",")
	}
	if limits := labels[owner.LabelUnenforced]; limits != "" {
		info.Unenforced = strings.Split(limits, ",")
	}
	return info
}

// recordNetwork records which network the sandbox has, and which of its ports are reachable.
func (sb *sandbox) recordNetwork() {
	n := provider.NetworkAccess{Network: sb.Spec.Network.Mode, Egress: fumehood.NetworkNone, Ports: map[string][]fumehood.Port{}}
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
		n.Ports[s.Name] = slices.Concat(s.Ports, s.Service.Service.Forward)
	}
	sb.Rec.Network(n)
}
