package kubernetes

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider/conformance"
)

// planner returns a provider that can only plan Pods.
func planner(t *testing.T, opts Options) *Provider {
	t.Helper()
	opts.GuestImage = "guest:1"
	opts, err := opts.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return &Provider{opts: opts, self: owner.ID{Host: "host", PID: 7, Start: 8}}
}

func podOf(t *testing.T, opts Options, spec fumehood.Spec) *corev1.Pod {
	t.Helper()
	spec.Name = "a_b"
	p := planner(t, opts)
	members, err := p.members(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := p.pod(spec, members, box.Marks{owner.LabelSandbox: spec.Name})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// Everything that isolates a Pod is set, whatever the spec asks for.
func TestPod_isolated(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		spec fumehood.Spec
	}{
		"smallest": {spec: fumehood.Spec{Image: "python"}},
		"all": {
			Options{UserNamespaces: true, RuntimeClass: "gvisor", PullSecrets: []string{"s"}},
			fumehood.Spec{Image: "python", User: "root", Keep: true, ShmSize: 1 << 20, Limits: fumehood.Limits{Memory: fumehood.NoLimit, PIDs: fumehood.NoLimit}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(t, c.opts, c.spec)
			s := pod.Spec
			if *s.AutomountServiceAccountToken || *s.EnableServiceLinks || s.HostNetwork || s.HostPID || s.HostIPC || s.RestartPolicy != corev1.RestartPolicyNever ||
				s.DNSPolicy != corev1.DNSNone || s.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%+v", s)
			}
			if len(s.Containers) != 1 || len(s.InitContainers) != 1 {
				t.Fatalf("%d and %d containers", len(s.Containers), len(s.InitContainers))
			}
			main, first := s.Containers[0], s.InitContainers[0]
			for _, container := range []corev1.Container{main, first} {
				if x := container.SecurityContext; *x.AllowPrivilegeEscalation || !slices.Equal(x.Capabilities.Drop, []corev1.Capability{"ALL"}) || container.ImagePullPolicy == corev1.PullAlways {
					t.Errorf("%s: %+v", container.Name, x)
				}
			}
			if slices.Contains(main.SecurityContext.Capabilities.Add, "NET_ADMIN") || slices.Contains(main.SecurityContext.Capabilities.Add, "SYS_ADMIN") || !main.VolumeMounts[0].ReadOnly {
				t.Errorf("%+v", main)
			}
			if !slices.Contains(first.Command, "--no-network") {
				t.Errorf("the init container runs %q", first.Command)
			}
			for _, v := range s.Volumes {
				if v.EmptyDir == nil {
					t.Errorf("volume %+v", v)
				}
			}
		})
	}
}

func TestPod_fields(t *testing.T) {
	spec := fumehood.Spec{
		Image: "python", User: "tester", Dir: "/work", Env: map[string]string{"A": "$(B) $$", "HOME": "/h"}, Runtime: "runsc",
		Limits: fumehood.Limits{Memory: 32 << 20, CPUs: 0.01, Disk: 1 << 30},
	}
	pod := podOf(t, Options{RuntimeClass: "other"}, spec)
	c := pod.Spec.Containers[0]
	if pod.Name != "a.b" || pod.Spec.Hostname != "a-b" || c.WorkingDir != "/work" || *pod.Spec.RuntimeClassName != "runsc" || *c.SecurityContext.RunAsUser != 0 {
		t.Errorf("%+v", pod)
	}
	if got := strings.Join(c.Command, " "); got != "/.fumehood/guest serve --await --home --as=tester" {
		t.Errorf("the container runs %q", got)
	}
	if c.Env[0] != (corev1.EnvVar{Name: "A", Value: "$$(B) $$$$"}) {
		t.Errorf("the variables are %+v", c.Env)
	}
	text, err := json.Marshal(c.Resources)
	const want = `{"limits":{"cpu":"10m","ephemeral-storage":"1Gi","memory":"32Mi"},"requests":{"cpu":"10m","ephemeral-storage":"0","memory":"32Mi"}}`
	if err != nil || string(text) != want {
		t.Errorf("the resources are %s, %v", text, err)
	}
	if pod := podOf(t, Options{}, fumehood.Spec{Image: "python"}); pod.Spec.Containers[0].SecurityContext.RunAsUser != nil || *pod.Spec.ActiveDeadlineSeconds != 7*24*3600 {
		t.Errorf("%+v", pod.Spec)
	}
	if pod := podOf(t, Options{}, fumehood.Spec{Image: "python", Keep: true}); pod.Spec.ActiveDeadlineSeconds != nil || pod.Labels[labelKept] != "true" {
		t.Errorf("a kept one: %+v", pod)
	}
}

func TestPlan_unsupported(t *testing.T) {
	for name, spec := range map[string]fumehood.Spec{
		"project": {Compose: &fumehood.Compose{Files: []string{"compose.yaml"}}},
		"network": {Network: fumehood.Network{Mode: fumehood.NetworkBridge}},
		"mount":   {Mounts: []fumehood.Mount{{Host: "/tmp", Container: "/tmp"}}},
		"port":    {Ports: []fumehood.Port{{Container: 80}}},
		"tmpfs":   {Tmpfs: []string{"/t"}},
		"seccomp": {Seccomp: fumehood.SeccompBrowsers},
		"runtime": {Runtime: "/usr/bin/runsc"},
		"pids":    {Limits: fumehood.Limits{PIDs: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := driver{planner(t, Options{})}.Plan(t.Context(), spec)
			conformance.WantError(t, err, fumehood.ErrUnsupported)
		})
	}
	body, err := driver{planner(t, Options{AllowUnenforcedLimits: true})}.Plan(t.Context(), fumehood.Spec{Limits: fumehood.Limits{PIDs: 100}})
	if err != nil || !slices.Equal(body.Base().About.Unenforced, []string{"pids"}) || body.Base().Spec.Image != DefaultImage {
		t.Errorf("%+v, %v", body, err)
	}
}

func TestOptions_invalid(t *testing.T) {
	for name, opts := range map[string]Options{
		"no guest":          {},
		"negative lease":    {GuestImage: "g", Lease: -1},
		"negative pending":  {GuestImage: "g", Pending: -1},
		"negative starting": {GuestImage: "g", MaxStarting: -1},
		"negative request":  {GuestImage: "g", RequestCPUs: -1},
		"no kubeconfig":     {GuestImage: "g", Kubeconfig: "/does/not/exist"},
	} {
		if _, err := New(t.Context(), opts); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
