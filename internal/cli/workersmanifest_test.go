package cli

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// printManifest runs 'workers manifest', and decodes what it prints strictly.
func printManifest(t *testing.T, args ...string) (svc corev1.Service, set appsv1.StatefulSet) {
	t.Helper()
	var out, log bytes.Buffer
	args = append([]string{"workers", "manifest", "--image", "registry.example.org/fumehood:1", "--token-secret", "token", "--tls-secret", "tls"}, args...)
	if code := run(context.WithoutCancel(t.Context()), args, Streams{In: strings.NewReader(""), Out: &out, Err: &log}); code != 0 {
		t.Fatalf("exit code %d: %s", code, log.String())
	}
	documents := strings.Split(out.String(), "\n---\n")
	if len(documents) != 2 {
		t.Fatalf("%d documents", len(documents))
	}
	for i, to := range []any{&svc, &set} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), to); err != nil {
			t.Fatalf("%v in\n%s", err, documents[i])
		}
	}
	return svc, set
}

func TestWorkersManifest(t *testing.T) {
	t.Parallel()
	svc, set := printManifest(t, "--name", "on", "--namespace", "evals", "--replicas", "3", "--memory", "6GiB", "--cpus", "1.5", "--storage", "30GiB", "--drain", "90s", "--pull-secrets", "s1,s2", "--", "--allow-image", `a"b: $(X)*`)
	labels := map[string]string{"app.kubernetes.io/name": "fumehood", "app.kubernetes.io/instance": "on"}
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	for name, ok := range map[string]bool{
		"kinds":             svc.Kind == "Service" && svc.APIVersion == "v1" && set.Kind == "StatefulSet" && set.APIVersion == "apps/v1",
		"names":             svc.Name == "on" && set.Name == "on" && set.Spec.ServiceName == "on" && svc.Namespace == "evals" && set.Namespace == "evals",
		"headless":          svc.Spec.ClusterIP == corev1.ClusterIPNone && svc.Spec.Ports[0].Port == 8420 && !svc.Spec.PublishNotReadyAddresses,
		"selectors":         maps.Equal(svc.Spec.Selector, labels) && maps.Equal(set.Spec.Selector.MatchLabels, labels) && maps.Equal(set.Spec.Template.Labels, labels),
		"replicas":          *set.Spec.Replicas == 3,
		"image":             c.Image == "registry.example.org/fumehood:1",
		"requests = limits": c.Resources.Requests.Memory().Value() == 6<<30 && c.Resources.Limits.Cpu().MilliValue() == 1500 && c.Resources.Requests.Cpu().Cmp(*c.Resources.Limits.Cpu()) == 0 && c.Resources.Limits.Memory().Cmp(*c.Resources.Requests.Memory()) == 0,
		"storage":           pod.Volumes[0].EmptyDir.SizeLimit.Value() == 30<<30 && c.Resources.Limits.StorageEphemeral().Value() == 30<<30,
		"no account":        !*pod.AutomountServiceAccountToken,
		"grace":             *pod.TerminationGracePeriodSeconds == 150,
		"anti-affinity":     maps.Equal(pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchLabels, labels),
		"probe":             c.ReadinessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS && c.ReadinessProbe.HTTPGet.Path == "/healthz",
		"least rights": !*pod.HostUsers && c.SecurityContext.Privileged == nil && c.SecurityContext.Capabilities == nil &&
			*c.SecurityContext.ProcMount == corev1.UnmaskedProcMount && c.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined,
		"secrets":        pod.Volumes[1].Secret.SecretName == "token" && *pod.Volumes[1].Secret.DefaultMode == 0o400 && pod.Volumes[2].Secret.SecretName == "tls",
		"one per 2 GiB":  follows(c.Args, "--max-sandboxes", "2"),
		"pull secrets":   len(pod.ImagePullSecrets) == 2 && pod.ImagePullSecrets[1].Name == "s2",
		"host":           follows(c.Args, "--host", "$(POD_IP):8420") && follows(c.Args, "--host", "$(POD_NAME).on.$(POD_NAMESPACE).svc:8420"),
		"flags of serve": slices.Equal(c.Args[len(c.Args)-2:], []string{"--allow-image", `a"b: $(X)*`}),
	} {
		if !ok {
			t.Errorf("%s: not as promised in %+v", name, set)
		}
	}
	a := &commandLine{Streams: Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}
	serve, _, err := a.rootCommand().Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.ParseFlags(c.Args[1:]); err != nil {
		t.Errorf("serve does not take its flags: %v", err)
	}
}

func TestWorkersManifest_privileged(t *testing.T) {
	t.Parallel()
	_, set := printManifest(t, "--privileged", "--max-sandboxes", "20", "--replicas", "0")
	pod := set.Spec.Template.Spec
	s := pod.Containers[0].SecurityContext
	if !*s.Privileged || pod.HostUsers != nil || s.ProcMount != nil || s.SeccompProfile != nil || set.Namespace != "" || *set.Spec.Replicas != 0 {
		t.Errorf("%+v", set)
	}
	if !follows(pod.Containers[0].Args, "--max-sandboxes", "20") {
		t.Errorf("%q", pod.Containers[0].Args)
	}
}

// follows reports whether a flag has a value.
func follows(args []string, flag, value string) bool {
	for i := range args[1:] {
		if args[i] == flag && args[i+1] == value {
			return true
		}
	}
	return false
}
