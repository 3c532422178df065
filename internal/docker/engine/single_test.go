package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/internal/docker/composesdk"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/test/tier"
)

// A container that is created without the SDK is the same as one of the SDK.
func TestClient_CreateContainer(t *testing.T) {
	ctx := t.Context()
	c, err := composesdk.Connect(ctx, composesdk.Options{Logger: slog.New(slog.DiscardHandler)})
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
				project := compose.FromSpec(spec)
				project.Apply(compose.Policy{
					Version: composesdk.Version(), Volume: name, Serve: serve, Sockets: func(string) string { return folder }, ConfigFile: folder + "/compose.yaml",
					Labels: labels, Limits: spec.Limits, Runtime: spec.Runtime, Images: map[string]compose.Image{compose.DefaultService: {Ref: spec.Image}},
				})
				var got [2]map[string]string
				for i, id := range []string{image.ID, ""} { // without an ID the SDK creates it
					if err := c.Create(ctx, project, id); err != nil {
						t.Fatal(err)
					}
					got[i] = inspectConfig(ctx, t, compose.ContainerName(name))
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

// inspectConfig returns the configuration of a container: for each key its JSON, but not for empty values.
func inspectConfig(ctx context.Context, t *testing.T, name string) map[string]string {
	t.Helper()
	c, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	res, err := c.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
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
