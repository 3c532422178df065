package kubernetes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/compose"
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
	// annotationDir is the working directory of a kept sandbox whose spec names none.
	annotationDir = "fumehood.dev/dir"
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

// unsupportedError returns an ErrUnsupported for a feature that a Pod cannot have.
func unsupportedError(feature, hint string) error {
	return &fumehood.Error{
		Op: "start sandbox", Class: fumehood.ErrUnsupported, Err: errors.New("the kubernetes provider cannot " + feature), Hint: hint,
	}
}

// checkSpec returns an error for what the provider cannot do.
func (p *Provider) checkSpec(spec fumehood.Spec) (unenforced []string, err error) {
	const elsewhere = "use the docker or the native provider"
	switch {
	case p.opts.GuestImage == "":
		return nil, &fumehood.Error{
			Op: "start sandbox", Class: fumehood.ErrConfig, Err: errors.New("no image of the guest is given"),
			Hint: "push one to a registry with `fumehood image guest --push REF`, and name it (--guest-image, guest_image, GuestImage)",
		}
	case spec.Compose != nil:
		return nil, unsupportedError("start a Compose project, or build an image", elsewhere)
	case !spec.Network.IsNone():
		return nil, unsupportedError("give a sandbox a network", "leave Network empty; Dial and Forward reach ports without one")
	case len(spec.Mounts) > 0:
		return nil, unsupportedError("mount paths of this machine, which the nodes do not have", "write the files after the start")
	case len(spec.Ports) > 0:
		return nil, unsupportedError("publish ports at the start", "use Forward")
	case len(spec.Tmpfs) > 0:
		return nil, unsupportedError("mount a tmpfs", "leave Tmpfs empty")
	case spec.Seccomp != "":
		return nil, unsupportedError("use the seccomp profile "+spec.Seccomp, elsewhere)
	case spec.Runtime != "" && strings.ContainsAny(spec.Runtime, "/_ "):
		return nil, unsupportedError(fmt.Sprintf("use the runtime %q: it is no name of a RuntimeClass", spec.Runtime), "name one of the cluster")
	}
	if pids := spec.Limits.PIDs; pids > 0 && !p.opts.AllowUnenforcedLimits {
		return nil, unsupportedError(fmt.Sprintf("limit a sandbox to %d processes: the kubelet's podPidsLimit applies", pids), "leave the limit at its default, or allow limits that are not enforced")
	}
	if spec.Limits.PIDs != fumehood.NoLimit {
		unenforced = append(unenforced, "pids")
	}
	return unenforced, nil
}

// pod returns the Pod of a sandbox.
func (p *Provider) pod(spec fumehood.Spec, marks box.Marks) (*corev1.Pod, error) {
	members, _, err := compose.FromSpec(spec).Members(spec, map[string]compose.Image{serviceName: {}})
	if err != nil {
		return nil, err
	}
	m := members[0]
	text, err := json.Marshal(marks)
	if err != nil {
		return nil, err
	}
	no, yes, deadline, grace := false, true, int64(p.opts.Lease.Seconds()), int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        podName(spec.Name),
			Labels:      map[string]string{labelManaged: "fumehood", labelOwner: ownerLabel(p.self)},
			Annotations: map[string]string{annotationMarks: string(text)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			TerminationGracePeriodSeconds: &grace, ActiveDeadlineSeconds: &deadline, Hostname: hostname(spec.Name),
			// There is no network. This keeps the cluster's names out of /etc/resolv.conf.
			DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}},
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Volumes:         []corev1.Volume{{Name: guestMount, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
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
	root := int64(0)
	pod.Spec.InitContainers = []corev1.Container{{
		Name: initName, Image: p.opts.GuestImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:      []string{"/guest", "install", guestDir, "--no-network"},
		VolumeMounts: []corev1.VolumeMount{{Name: guestMount, MountPath: guestDir}},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                p.resources(fumehood.Limits{Memory: initMemory}),
	}}
	pod.Spec.Containers = []corev1.Container{p.container(m)}
	if spec.ShmSize > 0 {
		addShm(pod, spec.ShmSize)
	}
	return pod, nil
}

// initMemory is the memory limit of the init container.
const initMemory = 64 << 20

// container returns the container of the sandbox's service.
func (p *Provider) container(m compose.Member) corev1.Container {
	no := false
	c := corev1.Container{
		Name: serviceName, Image: m.Spec.Image, ImagePullPolicy: corev1.PullIfNotPresent, WorkingDir: m.Spec.Dir,
		Command: append([]string{guestPath, "serve", "--await"}, identity(m.Spec, m.Spec.User)...),
		Stdin:   true, StdinOnce: true, // the guest notices when the host that has attached leaves
		VolumeMounts: []corev1.VolumeMount{{Name: guestMount, MountPath: guestDir, ReadOnly: true}},
		Resources:    p.resources(m.Spec.Limits.WithDefaults()),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Privileged: &no,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	for _, name := range m.Capabilities {
		c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, corev1.Capability(name))
	}
	if m.Spec.User != "" { // the guest resolves it, and becomes it
		root := int64(0)
		c.SecurityContext.RunAsUser = &root
	}
	for _, name := range slices.Sorted(maps.Keys(m.Spec.Env)) {
		// The kubelet would expand $(NAME).
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: strings.ReplaceAll(m.Spec.Env[name], "$", "$$")})
	}
	return c
}

// identity returns the arguments for a guest that becomes a user of the sandbox; none for an empty user.
func identity(spec fumehood.Spec, user string) []string {
	if user == "" {
		return nil
	}
	args := []string{"--as=" + user}
	if _, set := spec.Env["HOME"]; set {
		args = append(args, "--home")
	}
	return args
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

// addShm mounts an empty file system in memory at /dev/shm.
func addShm(pod *corev1.Pod, size int64) {
	source := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: resource.NewQuantity(size, resource.BinarySI)}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: source}})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "shm", MountPath: "/dev/shm"})
}
