package composesdk

import (
	"context"
	"encoding/json"
	"fmt"
	"github.com/moby/moby/api/types/mount"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/test/tier"
)

// A container that is created without the SDK is the same as one of the SDK.
func TestSDK_Create_single(t *testing.T) {
	ctx := t.Context()
	c, err := Connect(ctx, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Engine.Connect(ctx); err != nil {
		tier.Missing(t, tier.CI, err)
	}
	c.Settle()
	self, err := owner.Self()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("single-%d", self.PID)
	labels := compose.Labels{owner.LabelOwner: self.String(), owner.LabelSandbox: name}
	if err := c.Engine.CreateVolume(ctx, name, labels); err != nil {
		t.Fatal(err)
	}
	remove := func(kind engine.Kind) {
		ctx := context.WithoutCancel(ctx)
		objects, err := c.Engine.Objects(ctx, owner.LabelSandbox+"="+name, kind)
		if err != nil {
			t.Error(err)
		}
		for _, o := range objects {
			if err := c.Engine.Remove(ctx, o); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { remove(engine.Volume) })
	folder := t.TempDir()
	for variant, spec := range map[string]fumehood.Spec{
		"plain":     {},
		"no limits": {Limits: fumehood.Limits{Memory: fumehood.NoLimit, CPUs: fumehood.NoLimit, PIDs: fumehood.NoLimit}},
		"everything": {
			User: "1000", Dir: "/tmp", Env: map[string]string{"A": "b"}, ShmSize: 1 << 20, Runtime: "runc", Seccomp: fumehood.SeccompBrowsers,
			Limits: fumehood.Limits{Memory: 64 << 20, CPUs: 0.5, PIDs: 50}, Tmpfs: []string{"/t:size=1m"},
			Mounts: []fumehood.Mount{{Host: folder, Container: "/ro"}, {Host: folder, Container: "/rw", Writable: true}}, Keep: true,
		},
		"host network": {Network: fumehood.Network{Mode: fumehood.NetworkHost}, AllowUnsafe: true},
	} {
		for _, serve := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, guest %t", variant, serve), func(t *testing.T) {
				spec.Name, spec.Image = name, "fumehood-test/busybox"
				image, _, err := c.Engine.Image(ctx, spec.Image)
				if err != nil {
					t.Fatal(err)
				}
				project := compose.Generate(spec, compose.Main{Version: Version(), Volume: name, Serve: serve, Sockets: folder, ConfigFile: folder + "/compose.yaml"}, maps.Clone(labels))
				if _, ok := single(project.Types(), image.ID); !ok {
					t.Fatal("it is not created as a single container")
				}
				var got [2]map[string]string
				for i, id := range []string{image.ID, ""} { // without an ID the SDK creates it
					if err := c.Create(ctx, project, id); err != nil {
						t.Fatal(err)
					}
					got[i] = inspected(t, c, compose.ContainerName(name))
					remove(engine.Container)
				}
				for key := range got[1] {
					if got[0][key] != got[1][key] {
						t.Errorf("%s: got %s, want %s", key, got[0][key], got[1][key])
					}
				}
				if len(got[0]) != len(got[1]) {
					t.Errorf("got %d keys, want %d", len(got[0]), len(got[1]))
				}
			})
		}
	}
}

// inspected returns the configuration of a container: for each key its JSON, but not for empty values.
func inspected(t *testing.T, c *SDK, name string) map[string]string {
	t.Helper()
	res, err := c.cli.Client().ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	res.Container.Config.Hostname = ""
	delete(res.Container.Config.Labels, engine.LabelSeal)
	slices.SortFunc(res.Container.HostConfig.Mounts, func(a, b mount.Mount) int { return strings.Compare(a.Target, b.Target) }) // the SDK's have no order
	all := map[string]string{}
	for part, v := range map[string]any{"Config": res.Container.Config, "HostConfig": res.Container.HostConfig} {
		text, err := json.Marshal(v)
		values := map[string]json.RawMessage{}
		if err == nil {
			err = json.Unmarshal(text, &values)
		}
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range values {
			if empty := string(value); empty != "null" && empty != "[]" && empty != "{}" {
				all[part+"."+key] = string(value)
			}
		}
	}
	return all
}

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
