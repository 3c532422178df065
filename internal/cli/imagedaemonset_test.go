package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fumehood/fumehood/provider/kubernetes"
)

// decodeSets decodes DaemonSets strictly.
func decodeSets(t *testing.T, text string) (sets []appsv1.DaemonSet) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var set appsv1.DaemonSet
		if err := yaml.UnmarshalStrict([]byte(document), &set); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		sets = append(sets, set)
	}
	return sets
}

// imagesOf returns the images that a DaemonSet fetches.
func imagesOf(set appsv1.DaemonSet) (images []string) {
	for _, c := range set.Spec.Template.Spec.InitContainers[1:] {
		images = append(images, c.Image)
	}
	return images
}

// newClusterProgram returns a program whose cluster does not answer.
func newClusterProgram(t *testing.T) imageProgram {
	t.Helper()
	cmd, dir := program(t)
	p := imageProgram{append(cmd.Env, "FUMEHOOD_PROVIDER=kubernetes", "KUBECONFIG="+filepath.Join(dir, "kubeconfig")), dir}
	p.write(t, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c}}]}`)
	return p
}

// clusterTask writes a task with images of serveImages.
func (p imageProgram) clusterTask(t *testing.T, prefix, samples string) {
	t.Helper()
	p.write(t, "task.yaml", strings.ReplaceAll(`name: Task.of_1
environment: {image: PREFIXa:1}
command: [a]
samples:
- id: one
- {id: two, grader: {command: [g], environment: {image: PREFIXb:1}}}
- {id: three, environment: {compose: [compose.yaml]}}
`+samples, "PREFIX", prefix))
	p.write(t, "compose.yaml", strings.ReplaceAll(`services: {main: {image: PREFIXc:1}, side: {image: PREFIXa:1}, own: {image: PREFIXown:1, pull_policy: never}}`, "PREFIX", prefix))
}

func TestImagePrefetch_daemonSet(t *testing.T) {
	t.Parallel()
	p := newClusterProgram(t)
	prefix, shared, own := serveImages(t)
	p.clusterTask(t, prefix, "")
	prefetch := []string{"prefetch", "task.yaml", "--print-daemonset", "--guest-image", "r.example.org/guest:1"}
	set := decodeSets(t, p.must(t, append(prefetch, "--namespace", "evals", "--pull-secrets", "one,two", "--runtime", "gvisor", "--user-namespace")...))[0]
	pod, selector := set.Spec.Template.Spec, set.Spec.Selector.MatchLabels
	images := []string{prefix + "a:1", prefix + "b:1", prefix + "c:1"}
	for name, ok := range map[string]bool{
		"kind":       set.Kind == "DaemonSet" && set.APIVersion == "apps/v1",
		"name":       set.Name == "fumehood-images-task-of-1-1" && set.Namespace == "evals",
		"selector":   len(selector) == 2 && selector["app.kubernetes.io/instance"] == set.Name && set.Spec.Template.Labels["app.kubernetes.io/instance"] == set.Name && set.Spec.Template.Labels["app.kubernetes.io/name"] == selector["app.kubernetes.io/name"],
		"no sandbox": set.Spec.Template.Labels["app.kubernetes.io/managed-by"] == "", // cleanup would remove it
		"order":      slices.Equal(imagesOf(set), images),
		"no account": !*pod.AutomountServiceAccountToken,
		"seccomp":    pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault && pod.SecurityContext.RunAsNonRoot == nil,
		"secrets":    len(pod.ImagePullSecrets) == 2 && pod.ImagePullSecrets[1].Name == "two",
		"runtime":    *pod.RuntimeClassName == "gvisor" && !*pod.HostUsers,
		"guest":      pod.InitContainers[0].Image == "r.example.org/guest:1" && pod.Containers[0].Image == "r.example.org/guest:1" && len(pod.Containers) == 1,
	} {
		if !ok {
			t.Errorf("%s: not as promised in %+v", name, set)
		}
	}
	for i, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if c.ImagePullPolicy != corev1.PullIfNotPresent || *s.AllowPrivilegeEscalation || s.Capabilities.Drop[0] != "ALL" || s.Capabilities.Add != nil || s.RunAsNonRoot != nil ||
			c.Resources.Requests.Memory().Value() > 16<<20 || c.Resources.Requests.Cpu().MilliValue() > 1 || (*s.RunAsUser == 0) != (i == 0) {
			t.Errorf("got %+v", c)
		}
		if n := len(c.VolumeMounts); i > 0 && n > 0 && !c.VolumeMounts[0].ReadOnly || (n > 0) != (c.Name != "idle") {
			t.Errorf("%s mounts %+v", c.Name, c.VolumeMounts)
		}
	}

	code, out, errs := p.run(t, append(prefetch, "--max-bytes", fmt.Sprint(2*shared))...)
	if set := decodeSets(t, out)[0]; code != 0 || set.Namespace != "" || !strings.Contains(errs, prefix+"own:1: not pulled, each node must have it") {
		t.Errorf("exit code %d, %+v: %s", code, set, errs)
	}
	code, out, errs = p.run(t, append(prefetch, "--max-bytes", fmt.Sprint(shared+own["a"]+own["b"]))...)
	if got := imagesOf(decodeSets(t, out)[0]); code != 0 || !slices.Equal(got, images[:2]) || !strings.Contains(errs, prefix+"c:1: left, because of --max-bytes") {
		t.Errorf("exit code %d, %q: %s", code, got, errs)
	}
	if code, out, errs = p.run(t, append(prefetch, "--max-bytes", "1")...); code != 0 || out != "" || !strings.Contains(errs, "no images to fetch") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	for image, says := range map[string]string{
		"{image: 'NOT a name'}":      "NOT a name",
		"{dockerfile: Dockerfile}":   "builds no images",
		"{compose: [platform.yaml]}": "their own platform, not linux/arm64",
	} {
		p.write(t, "platform.yaml", "services: {main: {image: \""+prefix+"b:1\", platform: linux/arm64}}\n")
		p.write(t, "Dockerfile", "FROM "+prefix+"a:1\n")
		p.clusterTask(t, prefix, "- {id: four, environment: "+image+"}\n")
		if code, out, errs := p.run(t, prefetch...); code == 0 || out != "" || !strings.Contains(errs, says) {
			t.Errorf("%s: exit code %d: %s%s", image, code, out, errs)
		}
	}
}

// TestRenderDaemonSets has more images than one DaemonSet may have, and a long name of a task.
func TestRenderDaemonSets(t *testing.T) {
	t.Parallel()
	var images []string
	for i := range 2*imagesPerSet + 1 {
		images = append(images, fmt.Sprintf("r.example.org/i:%d", i))
	}
	text, err := renderDaemonSets(kubernetes.Options{GuestImage: "g"}, strings.Repeat("a", maxTaskLabel-1)+"._"+strings.Repeat("b", 60), images)
	if err != nil {
		t.Fatal(err)
	}
	var all, names []string
	for _, set := range decodeSets(t, text) {
		all, names = append(all, imagesOf(set)...), append(names, set.Name)
		for _, value := range set.Spec.Template.Labels {
			if bad := validation.IsValidLabelValue(value); bad != nil {
				t.Errorf("%s: %v", value, bad)
			}
		}
		if bad := validation.IsDNS1123Label(set.Name); bad != nil || len(imagesOf(set)) > imagesPerSet {
			t.Errorf("%s: %v, %d images", set.Name, bad, len(imagesOf(set)))
		}
		containers := map[string]bool{}
		for _, c := range set.Spec.Template.Spec.InitContainers {
			containers[c.Name] = true
		}
		if len(containers) != len(set.Spec.Template.Spec.InitContainers) {
			t.Errorf("%s: names of containers are not unique", set.Name)
		}
	}
	if !slices.Equal(all, images) || len(slices.Compact(names)) != 3 {
		t.Errorf("got %q in %q", all, names)
	}
	if got := taskLabel("._"); got != "task" {
		t.Errorf("got %q", got)
	}
}

// TestImagePlan_cluster plans for a cluster: what the nodes have is not known, and builds are not supported.
func TestImagePlan_cluster(t *testing.T) {
	t.Parallel()
	p := newClusterProgram(t)
	prefix, shared, own := serveImages(t)
	p.clusterTask(t, prefix, "")
	var plan planJSON
	if err := json.Unmarshal([]byte(p.must(t, "plan", "task.yaml", "--json")), &plan); err != nil {
		t.Fatal(err)
	}
	var images []string
	for _, i := range plan.Images {
		images = append(images, fmt.Sprintf("%s %d %s", i.Kind, i.Samples, strings.TrimPrefix(i.Image, prefix)))
		if i.Here != nil || i.Error != nil {
			t.Errorf("got %+v", i)
		}
	}
	if want := []string{"pull 3 a:1", "pull 1 b:1", "pull 1 c:1", "local 1 own:1"}; !slices.Equal(images, want) {
		t.Errorf("got %q, want %q", images, want)
	}
	if all := plan.Totals; all.UniqueBytes != shared+own["a"]+own["b"]+own["c"] || all.Missing != nil || all.MissingBytes != nil || all.FreeBytes != nil {
		t.Errorf("got %+v", all)
	}
	if text := p.must(t, "plan", "task.yaml"); !strings.Contains(text, "3        unknown  ") || !strings.Contains(text, "missing: not known\n") || strings.Contains(text, "missing  ") {
		t.Error(text)
	}
	p.write(t, "Dockerfile", "FROM "+prefix+"b:1\n")
	p.clusterTask(t, prefix, "- {id: four, environment: {dockerfile: Dockerfile}}\n")
	code, out, errs := p.run(t, "plan", "task.yaml")
	if code != exitFailure || !strings.Contains(out, "  build    error ") || !strings.Contains(errs, "/Dockerfile: the provider kubernetes builds no images") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, _, errs := p.run(t, "prefetch", "task.yaml"); code != exitFailure || !strings.Contains(errs, "--print-daemonset") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
