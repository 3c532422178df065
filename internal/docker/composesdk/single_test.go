package composesdk

import (
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
)

// What single does not know is left to the SDK.
func TestSingle_unknown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p *types.Project, svc *types.ServiceConfig){
		"a key":      func(_ *types.Project, svc *types.ServiceConfig) { svc.Init = new(true) },
		"privileged": func(_ *types.Project, svc *types.ServiceConfig) { svc.Privileged = true },
		"ulimits": func(_ *types.Project, svc *types.ServiceConfig) {
			svc.Ulimits = map[string]*types.UlimitsConfig{"data": {Single: 1}}
		},
		"ports":   func(_ *types.Project, svc *types.ServiceConfig) { svc.Ports = []types.ServicePortConfig{{Target: 1}} },
		"restart": func(_ *types.Project, svc *types.ServiceConfig) { svc.Restart = "always" },
		"a host's path": func(_ *types.Project, svc *types.ServiceConfig) {
			svc.Volumes = append(svc.Volumes, types.ServiceVolumeConfig{Type: "bind", Bind: &types.ServiceVolumeBind{CreateHostPath: true}})
		},
		"own volume":   func(p *types.Project, _ *types.ServiceConfig) { p.Volumes = types.Volumes{"guest": {Name: "own"}} },
		"a network":    func(p *types.Project, _ *types.ServiceConfig) { p.Networks = types.Networks{"n": {}} },
		"two services": func(p *types.Project, svc *types.ServiceConfig) { p.Services["other"] = *svc },
		"a variable":   func(_ *types.Project, svc *types.ServiceConfig) { svc.Environment["FROM_HOST"] = nil },
	} {
		p := compose.Generate(fumehood.Spec{Name: "box"}, compose.Main{Volume: "guest"}, compose.Labels{}).Types()
		if _, ok := single(p, "id"); !ok {
			t.Fatal("it does not know the generated project")
		}
		svc := p.Services[compose.DefaultService]
		change(p, &svc)
		p.Services[compose.DefaultService] = svc
		if _, ok := single(p, "id"); ok {
			t.Errorf("%s: it is lost", name)
		}
	}
}
