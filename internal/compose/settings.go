package compose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fumehood/fumehood"
)

// settings are a project's settings under x-fumehood.
type settings struct {
	egress    string // "" or fumehood.EgressInternet
	keepPorts bool
}

const settingsKey = "x-fumehood"

// parseSettings parses x-fumehood. Unknown keys are errors.
func (p *Project) parseSettings() (settings, error) {
	var s settings
	v, ok := p.as.Extensions[settingsKey]
	if !ok || v == nil {
		return s, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return s, p.badAt([]string{settingsKey}, "wanted a mapping")
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := []string{settingsKey, key}
		switch key {
		case "egress":
			egress, ok := m[key].(string)
			switch {
			case !ok && isMapping(m[key]):
				return s, p.badAt(at, "lists of allowed destinations are not supported yet, only %q", fumehood.EgressInternet)
			case !ok || egress != fumehood.EgressInternet:
				return s, p.badAt(at, "wanted %q, found %q", fumehood.EgressInternet, fmt.Sprint(m[key]))
			}
			s.egress = egress
		case "keep_ports":
			if s.keepPorts, ok = m[key].(bool); !ok {
				return s, p.badAt(at, "wanted true or false")
			}
		default:
			return s, p.badAt(at, "unknown setting: use egress or keep_ports")
		}
	}
	return s, nil
}

func isMapping(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}
