package kubernetes

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fumehood/fumehood"
)

// volumes are the volumes of a Pod, but for that of the guest.
type volumes struct {
	pod   *corev1.Pod
	users map[string]int    // by name of the project's volume: how many services mount it
	made  map[string]string // by the same: the name of the Pod's volume
}

func newVolumes(pod *corev1.Pod, members []member) *volumes {
	v := &volumes{pod: pod, users: map[string]int{}, made: map[string]string{}}
	for _, m := range members {
		for _, each := range m.Volumes {
			v.users[each.Name]++
		}
	}
	return v
}

// mount adds the volumes and file systems in memory of a service. A volume that only this service mounts, and can write to, is
// a folder of the container, with the image's files. Others are empty at first.
func (v *volumes) mount(m member, c *corev1.Container) {
	for _, each := range m.Volumes {
		if each.Writable && !m.ReadOnly && (each.Name == "" || v.users[each.Name] == 1) {
			c.Command = append(c.Command, escape("--folder="+each.Container))
			continue
		}
		name := v.made[each.Name]
		if name == "" || each.Name == "" {
			name = v.add(corev1.StorageMediumDefault, max(m.Spec.Limits.Disk, 0))
			v.made[each.Name] = name
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: each.Container, ReadOnly: !each.Writable})
	}
	for _, t := range m.Tmpfs {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.add(corev1.StorageMediumMemory, sizeOf(t)), MountPath: t.Container, ReadOnly: t.ReadOnly})
	}
	if m.Shm > 0 {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.add(corev1.StorageMediumMemory, m.Shm), MountPath: "/dev/shm"})
	}
}

// add adds an empty volume of at most size bytes, or of any size for 0, and returns its name.
func (v *volumes) add(medium corev1.StorageMedium, size int64) string {
	name := fmt.Sprintf("volume-%d", len(v.pod.Spec.Volumes))
	source := &corev1.EmptyDirVolumeSource{Medium: medium}
	if size > 0 {
		source.SizeLimit = resource.NewQuantity(size, resource.BinarySI)
	}
	v.pod.Spec.Volumes = append(v.pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: source}})
	return name
}

// sizeOf returns the size of a tmpfs in bytes; 0 if none is given.
func sizeOf(t fumehood.Tmpfs) (size int64) {
	for _, option := range t.Options {
		if text, ok := strings.CutPrefix(option, "size="); ok {
			size, _ = strconv.ParseInt(text, 10, 64) // see compose.OnlySize
		}
	}
	return size
}
