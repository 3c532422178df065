package kubernetes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner"
)

const (
	// serviceName is the name of a sandbox's only service and container, initName that of the init container.
	serviceName = "default"
	initName    = "fumehood-guest"
	// guestDir is where the guest is in each container.
	guestDir   = "/.fumehood"
	guestPath  = guestDir + "/guest"
	guestMount = "fumehood-guest"

	// labelManaged and the next ones are labels by which Pods are found. The owner's is a hash, since labels allow few characters.
	labelManaged = "app.kubernetes.io/managed-by"
	labelKept    = "fumehood.dev/kept"
	labelOwner   = "fumehood.dev/owner"
	managed      = labelManaged + "=fumehood"
	// annotationMarks has the marks of a sandbox as JSON.
	annotationMarks = "fumehood.dev/marks"
	// annotationCall identifies the call that creates a Pod.
	annotationCall = "fumehood.dev/call"
	// annotationServices describes the services of a kept sandbox, as JSON of []keptService.
	annotationServices = "fumehood.dev/services"
)

// podName returns the name of a sandbox's Pod. Names of Pods have no underscores, names of sandboxes no dots.
func podName(sandbox string) string { return strings.ReplaceAll(sandbox, "_", ".") }

// ownerLabel returns the value of labelOwner.
func ownerLabel(id owner.ID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return hex.EncodeToString(sum[:16])
}

// marksOf returns the marks of a Pod; nil if it has none.
func marksOf(pod *corev1.Pod) (m box.Marks) {
	if json.Unmarshal([]byte(pod.Annotations[annotationMarks]), &m) != nil {
		return nil
	}
	return m
}

// pod returns the Pod of a sandbox with these services.
func (p *Provider) pod(spec fumehood.Spec, members []member, marks box.Marks) (*corev1.Pod, error) {
	text, err := json.Marshal(marks)
	if err != nil {
		return nil, err
	}
	no, deadline, grace := false, int64(p.opts.Lease.Seconds()), int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        podName(spec.Name),
			Labels:      map[string]string{labelManaged: "fumehood", labelOwner: ownerLabel(p.self)},
			Annotations: map[string]string{annotationMarks: string(text)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			TerminationGracePeriodSeconds: &grace, ActiveDeadlineSeconds: &deadline, Hostname: hostname(members[0].Hostname),
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Volumes:         []corev1.Volume{{Name: guestMount, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	network := !members[0].Spec.Network.IsNone() // all services have the same
	if !network {                                // this keeps the cluster's names out of /etc/resolv.conf
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}}
	}
	if spec.Keep {
		pod.Labels[labelKept], pod.Spec.ActiveDeadlineSeconds = "true", nil
	}
	if p.opts.UserNamespaces {
		pod.Spec.HostUsers = &no
	}
	if class := cmp.Or(spec.Runtime, p.opts.RuntimeClass); class != "" {
		pod.Spec.RuntimeClassName = &class
	}
	for _, name := range p.opts.PullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	v := newVolumes(pod, members)
	pod.Spec.InitContainers = []corev1.Container{p.initContainer(network)}
	for i, m := range members {
		c := p.container(m)
		v.mount(m, &c)
		if spec.Compose != nil {
			hosts := fmt.Sprintf("hosts%d", i) // of initContainer
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: guestMount, MountPath: "/etc/hosts", SubPath: hosts, ReadOnly: true})
			install := &pod.Spec.InitContainers[0]
			install.Command = append(install.Command, "--hosts="+escape(hostsFile(m, pod.Spec.Hostname)))
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod, nil
}

// initMemory is the memory limit of the init container.
const initMemory = 64 << 20

// refused are the destinations that a sandbox with a network cannot send to: private networks, which are those of clusters
// and their nodes, and what is no host of the internet.
var refused = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/3",
}

// initContainer returns the container that prepares a Pod: the guest's program, and the network.
func (p *Provider) initContainer(network bool) corev1.Container {
	no, yes, root := false, true, int64(0)
	c := corev1.Container{
		Name: initName, Image: p.opts.GuestImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:      []string{"/guest", "install", guestDir},
		VolumeMounts: []corev1.VolumeMount{{Name: guestMount, MountPath: guestDir}},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                p.resources(fumehood.Limits{Memory: initMemory}),
	}
	if !network {
		c.Command = append(c.Command, "--no-network")
		return c
	}
	const host = "NODE"
	c.Env = []corev1.EnvVar{{Name: host, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"}}}}
	for _, dst := range append(slices.Clip(refused), "$("+host+")/32") { // the kubelet expands it
		c.Command = append(c.Command, "--refuse="+dst)
	}
	return c
}

// container returns the container of a service.
func (p *Provider) container(m member) corev1.Container {
	no := false
	c := corev1.Container{
		Name: m.container, Image: m.image, ImagePullPolicy: corev1.PullPolicy(cmp.Or(pullPolicies[m.pull], "IfNotPresent")), WorkingDir: m.Spec.Dir,
		Stdin: true, StdinOnce: true, // the guest notices when the host that has attached leaves
		VolumeMounts: []corev1.VolumeMount{{Name: guestMount, MountPath: guestDir, ReadOnly: true}},
		Resources:    p.resources(m.Spec.Limits.WithDefaults()),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Privileged: &no, ReadOnlyRootFilesystem: &m.ReadOnly,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	for _, arg := range slices.Concat([]string{guestPath, "serve", "--await"}, environment(m), identity(m.Spec.User)) {
		c.Command = append(c.Command, escape(arg))
	}
	for _, name := range m.Capabilities {
		c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, corev1.Capability(name))
	}
	if m.Spec.User != "" { // the guest resolves it, and becomes it
		root := int64(0)
		c.SecurityContext.RunAsUser = &root
	}
	for _, name := range slices.Sorted(maps.Keys(m.Spec.Env)) {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: escape(m.Spec.Env[name])})
	}
	return c
}

// escape keeps the kubelet from expanding $(NAME).
func escape(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// environment returns the arguments of each guest of a service about variables.
func environment(m member) (args []string) {
	for _, name := range m.Unset {
		args = append(args, "--unset="+name)
	}
	if _, set := m.Spec.Env["HOME"]; set {
		args = append(args, "--home")
	}
	return args
}

// identity returns the arguments for a guest that becomes a user of the sandbox; none for an empty user.
func identity(user string) []string {
	if user == "" {
		return nil
	}
	return []string{"--as=" + user}
}

// hostsFile returns the text of /etc/hosts for a service of a project.
func hostsFile(m member, host string) string {
	text := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	if !slices.ContainsFunc(m.Hosts, func(line string) bool { return slices.Contains(strings.Fields(line), host) }) {
		text += "127.0.0.1\t" + host + "\n"
	}
	return text + strings.Join(m.Hosts, "\n") + "\n"
}

// hostname returns a valid host name for a sandbox.
func hostname(sandbox string) string {
	return cmp.Or(strings.Trim(strings.ReplaceAll(sandbox, "_", "-"), "-"), serviceName)
}

// resources returns the limits of a container, and what is reserved for it.
func (p *Provider) resources(l fumehood.Limits) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}}
	memory, cpus := p.opts.RequestMemory, p.opts.RequestCPUs
	if l.Memory > 0 {
		memory = min(memory, l.Memory)
		r.Limits[corev1.ResourceMemory] = *resource.NewQuantity(l.Memory, resource.BinarySI)
	}
	if l.CPUs > 0 {
		cpus = min(cpus, l.CPUs)
		r.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(max(1, int64(l.CPUs*1000)), resource.DecimalSI)
	}
	if l.Disk > 0 {
		r.Limits[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(l.Disk, resource.BinarySI)
		r.Requests[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(0, resource.BinarySI)
	}
	r.Requests[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	r.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(cpus*1000), resource.DecimalSI)
	return r
}
