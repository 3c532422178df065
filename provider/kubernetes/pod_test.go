package kubernetes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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
		"network": {Network: fumehood.Network{Mode: "others"}},
		"mount":   {Mounts: []fumehood.Mount{{Host: "/tmp", Container: "/tmp"}}},
		"port":    {Ports: []fumehood.Port{{Container: 80}}, Keep: true},
		"tmpfs":   {Tmpfs: []string{"/t:uid=5"}},
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
	p := planner(t, Options{})
	p.opts.GuestImage = ""
	_, err = driver{p}.Plan(t.Context(), fumehood.Spec{})
	conformance.WantError(t, err, fumehood.ErrConfig)
}

func TestOptions_invalid(t *testing.T) {
	for name, opts := range map[string]Options{
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

// A project's services share volumes, know each other's names, and have their own limits.
func TestPod_project(t *testing.T) {
	registry := httptest.NewServer(http.NotFoundHandler())
	registry.Close() // images of services with an entrypoint need not be known
	host := strings.TrimPrefix(registry.URL, "http://")
	text := strings.ReplaceAll(`
services:
  main:
    {image: HOST/a, entrypoint: [sleep], command: [infinity], hostname: front, volumes: ["data:/d", "own:/o", "data:/r:ro"], tmpfs: "/t:size=1m", shm_size: 2m}
  Back_End:
    {image: HOST/b, pull_policy: never, entrypoint: [serve], command: [$$X], user: "7", read_only: true, mem_limit: 64m, environment: {A: $$(B), GONE: }, volumes: ["data:/d", "last:/l"]}
volumes: {data: {}, own: {}, last: {}}
`, "HOST", host)
	pod := podOf(t, Options{}, fumehood.Spec{Compose: &fumehood.Compose{Content: text}})
	s := pod.Spec
	if len(s.Containers) != 2 || s.Hostname != "front" || s.DNSPolicy != corev1.DNSNone {
		t.Fatalf("%+v", s)
	}
	main, back := s.Containers[0], s.Containers[1]
	if main.Name != "main" || back.Name != "back-end" || back.ImagePullPolicy != corev1.PullNever || back.Image != host+"/b" || !*back.SecurityContext.ReadOnlyRootFilesystem ||
		back.Resources.Limits.Memory().Value() != 64<<20 || len(back.Env) != 1 || back.Env[0].Value != "$$(B)" {
		t.Errorf("%+v", back)
	}
	for container, want := range map[*corev1.Container]string{
		&main: "/.fumehood/guest serve --await --folder=/o", &back: "/.fumehood/guest serve --await --unset=GONE --as=7",
	} {
		if got := strings.Join(container.Command, " "); got != want {
			t.Errorf("the container %s runs %q, want %q", container.Name, got, want)
		}
	}
	mounts := func(c corev1.Container) (all []string) {
		for _, m := range c.VolumeMounts {
			all = append(all, fmt.Sprintf("%s %s%s %t", m.Name, m.MountPath, m.SubPath, m.ReadOnly))
		}
		return all
	}
	const guest = "fumehood-guest /.fumehood true"
	if got, want := mounts(main), []string{
		guest, "volume-1 /d false", "volume-1 /r true", "volume-2 /t false", "volume-3 /dev/shm false", "fumehood-guest /etc/hostshosts0 true",
	}; !slices.Equal(got, want) {
		t.Errorf("main mounts %q, want %q", got, want)
	}
	if got, want := mounts(back), []string{guest, "volume-1 /d false", "volume-4 /l false", "volume-5 /dev/shm false", "fumehood-guest /etc/hostshosts1 true"}; !slices.Equal(got, want) {
		t.Errorf("the other one mounts %q, want %q", got, want)
	}
	if got := s.InitContainers[0].Command; len(got) != 6 || !strings.Contains(got[5], "127.0.0.1\tmain front\n127.0.0.1\tBack_End\n") {
		t.Errorf("the init container runs %q", got)
	}
}

// An image whose program is not known is an error, since the file does not name its entrypoint.
func TestMembers_unknownProgram(t *testing.T) {
	registry := httptest.NewServer(http.NotFoundHandler())
	defer registry.Close()
	text := "services: {a: {image: " + strings.TrimPrefix(registry.URL, "http://") + "/a, command: sleep infinity}}"
	_, err := planner(t, Options{}).members(t.Context(), fumehood.Spec{Name: "x", Compose: &fumehood.Compose{Content: text}}, nil)
	conformance.WantError(t, err, fumehood.ErrConfig)
	if err == nil || !strings.Contains(err.Error(), "in service a: the program of image") {
		t.Error(err)
	}
}

// A sandbox with a network has the cluster's name server, and cannot send to private networks and its node.
func TestPod_network(t *testing.T) {
	pod := podOf(t, Options{}, fumehood.Spec{Image: "python", Network: fumehood.Network{Mode: fumehood.NetworkBridge}})
	c := pod.Spec.InitContainers[0]
	got := strings.Join(c.Command, " ")
	if slices.Contains(c.Command, "--no-network") || !strings.Contains(got, "--refuse=10.0.0.0/8 ") || !strings.HasSuffix(got, " --refuse=$(NODE)/32") ||
		c.Env[0].Name != "NODE" || c.Env[0].ValueFrom.FieldRef.FieldPath != "status.hostIP" || pod.Spec.DNSPolicy != "" {
		t.Errorf("%+v", c)
	}
}
