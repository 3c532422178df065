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
func (c *checking) parseSettings() (s settings) {
	v, ok := c.as.Extensions[settingsKey]
	if !ok || v == nil {
		return s
	}
	m, ok := v.(map[string]any)
	if !ok {
		c.refuse([]string{settingsKey}, "wanted a mapping")
		return s
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := []string{settingsKey, key}
		switch key {
		case "egress":
			egress, ok := m[key].(string)
			switch {
			case !ok && isMapping(m[key]):
				c.refuse(at, "lists of allowed destinations are not supported yet, only %q", fumehood.EgressInternet)
			case !ok || egress != fumehood.EgressInternet:
				c.refuse(at, "wanted %q, found %q", fumehood.EgressInternet, fmt.Sprint(m[key]))
			default:
				s.egress = egress
			}
		case "keep_ports":
			if s.keepPorts, ok = m[key].(bool); !ok {
				c.refuse(at, "wanted true or false")
			}
		default:
			c.refuse(at, "unknown setting: use egress or keep_ports")
		}
	}
	return s
}

func isMapping(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}
