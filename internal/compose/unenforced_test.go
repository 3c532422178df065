package compose

import (
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

func TestUnheld_standIn(t *testing.T) {
	t.Parallel()
	const limit = 1 << 30
	own := func(u types.UlimitsConfig) *types.ServiceConfig {
		return &types.ServiceConfig{MemLimit: limit, Ulimits: map[string]*types.UlimitsConfig{"data": &u}}
	}
	deploy := &types.ServiceConfig{Deploy: &types.DeployConfig{Resources: types.Resources{Limits: &types.Resource{MemoryBytes: limit}}}}
	for name, c := range map[string]struct {
		svc  *types.ServiceConfig
		want types.UlimitsConfig
	}{
		"mem_limit":        {&types.ServiceConfig{MemLimit: limit}, types.UlimitsConfig{Single: limit}},
		"deploy":           {deploy, types.UlimitsConfig{Single: limit}},
		"own, unlimited":   {own(types.UlimitsConfig{Single: -1}), types.UlimitsConfig{Single: limit}},
		"own, hard only":   {own(types.UlimitsConfig{Soft: -1, Hard: 1 << 29}), types.UlimitsConfig{Single: limit}},
		"own, higher":      {own(types.UlimitsConfig{Single: 2 * limit}), types.UlimitsConfig{Single: limit}},
		"own, lower":       {own(types.UlimitsConfig{Single: 1 << 29}), types.UlimitsConfig{Single: 1 << 29}},
		"own, lower, both": {own(types.UlimitsConfig{Soft: 1 << 28, Hard: 1 << 29}), types.UlimitsConfig{Soft: 1 << 28, Hard: 1 << 29}},
		"less than runc's": {&types.ServiceConfig{MemLimit: 1 << 20}, types.UlimitsConfig{Single: leastData}},
	} {
		Unheld{Memory: true}.standIn(c.svc)
		if got := c.svc.Ulimits["data"]; got == nil || got.Single != c.want.Single || got.Soft != c.want.Soft || got.Hard != c.want.Hard {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
