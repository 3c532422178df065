package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/wire"
)

// lasting are the reasons why a container waits that do not pass. The kubelet tries again, in vain unless somebody changes
// the registry or the cluster.
var lasting = map[string]error{
	"InvalidImageName":           fumehood.ErrConfig,
	"ErrImageNeverPull":          fumehood.ErrConfig,
	"CreateContainerConfigError": fumehood.ErrConfig,
	"CreateContainerError":       fumehood.ErrInfrastructure,
	"RunContainerError":          fumehood.ErrInfrastructure,
	"ErrImagePull":               fumehood.ErrUnavailable,
	"ImagePullBackOff":           fumehood.ErrUnavailable,
}

// ofSpec are parts of messages of registries and runtimes about errors that the spec causes: its image or its folder.
var ofSpec = []string{
	"not found", "denied", "unauthorized", "authorization failed", "invalid reference", // registries
	"no such file or directory", "not a directory", "permission denied", "file exists", // runtimes
}

func isOfSpec(message string) bool {
	return slices.ContainsFunc(ofSpec, func(part string) bool { return strings.Contains(message, part) })
}

// hindrance returns why a Pod that has not started cannot start; nil if it may.
func hindrance(pod *corev1.Pod) error {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch w, t := s.State.Waiting, s.State.Terminated; {
		case w != nil && lasting[w.Reason] != nil:
			class, text := lasting[w.Reason], box.Readable(w.Message)
			if isOfSpec(w.Message) {
				class = fumehood.ErrConfig
			}
			err := fmt.Errorf("image %s: %s: %s", s.Image, w.Reason, cmp.Or(text, "no message"))
			if class == fumehood.ErrUnavailable { //nolint:errorlint // the class itself
				err = &pullError{err}
			}
			return &fumehood.Error{Class: class, Err: err, Hint: hintOf(w.Reason)}
		case t != nil && s.Name == initName && t.ExitCode != 0:
			return &fumehood.Error{
				Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the init container with the guest's image %s has failed: exit code %d, %s", s.Image, t.ExitCode, box.Readable(t.Message)),
				Hint: "check that the namespace allows CAP_NET_ADMIN for it, and that the image is of this version",
			}
		}
	}
	return nil
}

// pullError is the failure of a registry. The kubelet tries again.
type pullError struct{ error }

func hintOf(reason string) string {
	switch reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull":
		return "check the image's name, that the nodes reach its registry, and the pull secrets"
	}
	return ""
}

// pendingReason describes what a Pod waits for.
func pendingReason(pod *corev1.Pod) string {
	if pod == nil {
		return "the cluster does not report the Pod"
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "no node takes the Pod: " + cmp.Or(box.Readable(c.Message), c.Reason)
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			return fmt.Sprintf("container %s, image %s: %s %s", s.Name, s.Image, w.Reason, box.Readable(w.Message))
		}
	}
	return "the Pod is " + strings.ToLower(string(cmp.Or(pod.Status.Phase, corev1.PodPending)))
}

// errGone is why a sandbox is unavailable whose Pod does not exist.
func errGone() error {
	return &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("the Pod was deleted"), Hint: "start a new sandbox"}
}

// deathOf returns why a container is unavailable; zero if it runs.
func deathOf(pod *corev1.Pod, container string) box.Death {
	why := func(class error, format string, a ...any) box.Death {
		return box.Death{Err: &fumehood.Error{Class: class, Err: fmt.Errorf(format, a...), Hint: "start a new sandbox"}}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return why(disruption(pod), "the cluster has ended the Pod: %s: %s", c.Reason, box.Readable(cmp.Or(pod.Status.Message, c.Message)))
		}
	}
	t := endOf(pod, container)
	switch {
	case t != nil && t.Reason == "OOMKilled":
		d := why(fumehood.ErrBroken, "the out-of-memory killer has ended the container: the limit of memory is reached")
		d.OutOfMemory = true
		return d
	case pod.Status.Reason == "Evicted":
		return why(disruption(pod), "the kubelet has evicted the Pod: %s", box.Readable(pod.Status.Message))
	case pod.Status.Reason == "DeadlineExceeded":
		return why(fumehood.ErrUnavailable, "the Pod has reached its time limit, the lease of sandboxes that are not kept")
	case pod.Status.Reason == "NodeLost" || pod.Status.Phase == corev1.PodUnknown:
		return why(fumehood.ErrUnavailable, "node %s is lost", pod.Spec.NodeName)
	case t != nil && (t.Reason == "StartError" || t.Reason == "ContainerCannotRun"):
		class := fumehood.ErrInfrastructure
		if isOfSpec(t.Message) {
			class = fumehood.ErrConfig
		}
		return box.Death{Err: &fumehood.Error{Class: class, Err: fmt.Errorf("the container cannot start: %s", box.Readable(t.Message))}}
	case t != nil && t.ExitCode == wire.NoSuchUser:
		return box.Death{Err: &fumehood.Error{
			Class: fumehood.ErrConfig, Err: errors.New("the image has no user of the name that the spec has"), Hint: "name a user of the image, or a number",
		}}
	case t != nil && t.ExitCode == 0:
		return why(fumehood.ErrUnavailable, "%s: the guest had no host for too long", box.CutReason)
	case t != nil:
		return why(fumehood.ErrUnavailable, "the container has ended with exit code %d (%s): it was ended from outside", t.ExitCode, t.Reason)
	case pod.Status.Phase == corev1.PodFailed:
		return why(fumehood.ErrUnavailable, "the Pod has failed: %s %s", pod.Status.Reason, box.Readable(pod.Status.Message))
	case pod.DeletionTimestamp != nil && time.Now().After(pod.DeletionTimestamp.Time):
		return why(fumehood.ErrUnavailable, "the Pod is being deleted")
	}
	return box.Death{}
}

// disruption returns the class of an eviction: code in the sandbox has caused one for the storage that it used.
func disruption(pod *corev1.Pod) error {
	if text := pod.Status.Message; strings.Contains(text, "exceeds the total limit") || strings.Contains(text, "exceeds the limit") || strings.Contains(text, "exceeded its local ephemeral storage limit") {
		return fumehood.ErrBroken
	}
	return fumehood.ErrUnavailable
}

// isQuota reports whether the API server's refusal is about a quota.
func isQuota(message string) bool { return strings.Contains(message, "exceeded quota") }

// endOf returns how a container ended; nil if it has not.
func endOf(pod *corev1.Pod, container string) *corev1.ContainerStateTerminated {
	if s := status(pod, container); s != nil {
		return s.State.Terminated
	}
	return nil
}

// status returns the status of a container; nil before there is one.
func status(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	if pod == nil {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == container {
			return s
		}
	}
	return nil
}

// runs reports whether a container runs.
func runs(pod *corev1.Pod, container string) bool {
	s := status(pod, container)
	return s != nil && s.State.Running != nil
}
