package docker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/internal/engine"
)

// describing are the labels that say what a sandbox is for. All are set, as Provider.labels has it.
func describing(info lazaret.Info) map[string]string {
	l := map[string]string{
		engine.LabelTask: info.Sample.Task, engine.LabelSample: info.Sample.ID, engine.LabelEpoch: "",
		engine.LabelConfig: info.ConfigFile, engine.LabelEnv: strings.Join(info.EnvNames, ","),
	}
	if info.Sample.Epoch > 0 {
		l[engine.LabelEpoch] = strconv.Itoa(info.Sample.Epoch)
	}
	return l
}

// described is what labels say of a sandbox.
func described(labels map[string]string) lazaret.Info {
	info := lazaret.Info{
		Sample:     lazaret.Sample{Task: labels[engine.LabelTask], ID: labels[engine.LabelSample]},
		ConfigFile: labels[engine.LabelConfig],
	}
	info.Sample.Epoch, _ = strconv.Atoi(labels[engine.LabelEpoch]) // 0 where there is none
	if names := labels[engine.LabelEnv]; names != "" {
		info.EnvNames = strings.Split(names, ",")
	}
	return info
}

// recordNetwork takes down which network the sandbox was given, and which of its ports are to be reached.
func (sb *sandbox) recordNetwork() {
	n := lazaret.Networking{Network: sb.spec.Network, Egress: lazaret.NetworkNone, Ports: map[string][]lazaret.Port{}}
	switch {
	case sb.loaded != nil && sb.loaded.Internal():
		n.Network = "internal"
	case sb.loaded != nil:
		n.Network, n.Egress = "project", lazaret.EgressInternet
	case n.Network == "":
		n.Network = lazaret.NetworkNone
	case n.Network == lazaret.NetworkBridge, n.Network == lazaret.NetworkHost:
		n.Egress = lazaret.EgressInternet
	case n.Network != lazaret.NetworkNone:
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
