package composesdk

import (
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

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
		"own volume": func(p *types.Project, _ *types.ServiceConfig) {
			p.Volumes = types.Volumes{"fumehood-guest": {Name: "own"}}
		},
		"a network":    func(p *types.Project, _ *types.ServiceConfig) { p.Networks = types.Networks{"n": {}} },
		"two services": func(p *types.Project, svc *types.ServiceConfig) { p.Services["other"] = *svc },
		"a variable":   func(_ *types.Project, svc *types.ServiceConfig) { svc.Environment["FROM_HOST"] = nil },
	} {
		project := compose.FromSpec(fumehood.Spec{Name: "box"})
		project.Apply(compose.Policy{Volume: "guest", Images: map[string]compose.Image{compose.DefaultService: {Ref: "i"}}})
		if _, ok := single(project, "id"); !ok {
			t.Fatal("it does not know the project of a spec")
		}
		p := project.Types()
		svc := p.Services[compose.DefaultService]
		change(p, &svc)
		p.Services[compose.DefaultService] = svc
		if _, ok := single(project, "id"); ok {
			t.Errorf("%s: it is lost", name)
		}
	}
}

// single knows all that a spec sets, but networks.
func TestSingle_spec(t *testing.T) {
	t.Parallel()
	all := fumehood.Spec{
		Name: "box", Image: "a", Env: map[string]string{"A": "b"}, User: "1", Dir: "/d", Runtime: "r", Seccomp: fumehood.SeccompBrowsers,
		Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 1, PIDs: 50, Disk: 1 << 20}, ShmSize: 1 << 20, Tmpfs: []string{"/t"},
		Mounts: []fumehood.Mount{{Host: "/a", Container: "/b"}}, AllowUnsafe: true, Keep: true, TTL: time.Hour, Binary: "podman",
		Labels: map[string]string{"l": "v"}, ConfigFile: "c", Journal: slog.Default(), Logger: slog.Default(),
	}
	for field, value := range reflect.ValueOf(all).Fields() {
		if value.IsZero() && !slices.Contains([]string{"Compose", "Images", "Network", "Ports"}, field.Name) {
			t.Errorf("%s: set it here", field.Name)
		}
	}
	for name, spec := range map[string]fumehood.Spec{"all": all, "none": {Name: "box"}} {
		project := compose.FromSpec(spec)
		project.Apply(compose.Policy{
			Volume: "guest", Serve: true, Limits: spec.Limits, Sockets: func(string) string { return "/s" },
			Images: map[string]compose.Image{compose.DefaultService: {Ref: "i"}},
		})
		if _, ok := single(project, "id"); !ok {
			t.Errorf("%s: it does not know the project", name)
		}
	}
}
