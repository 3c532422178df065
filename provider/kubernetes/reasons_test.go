package kubernetes

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
)

// ended returns a Pod whose container has ended.
func ended(reason string, code int32) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		Name: serviceName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}},
	}}}}
}

func failed(reason, message string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}}
}

func TestDeathOf(t *testing.T) {
	preempted := failed("", "")
	preempted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", Message: "for another Pod\x1b[2J"}}
	deleted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Now().Add(-time.Second)}}}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		class error
		text  string
		oom   bool
	}{
		"out of memory":  {ended("OOMKilled", 137), fumehood.ErrBroken, "memory", true},
		"killed":         {ended("Error", 137), fumehood.ErrUnavailable, "137", false},
		"no host":        {ended("Completed", 0), fumehood.ErrUnavailable, "no host", false},
		"no user":        {ended("Error", 5), fumehood.ErrConfig, "no user of the name", false},
		"no folder":      {ended("StartError", 128), fumehood.ErrInfrastructure, "cannot start", false},
		"deadline":       {failed("DeadlineExceeded", ""), fumehood.ErrUnavailable, "time limit", false},
		"node pressure":  {failed("Evicted", "The node was low on resource: memory."), fumehood.ErrUnavailable, "low on resource", false},
		"own disk":       {failed("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi."), fumehood.ErrBroken, "exceeds", false},
		"own volume":     {failed("Evicted", `Usage of EmptyDir volume "shm" exceeds the limit "1Mi".`), fumehood.ErrBroken, "exceeds", false},
		"node lost":      {failed("NodeLost", ""), fumehood.ErrUnavailable, "lost", false},
		"preempted":      {preempted, fumehood.ErrUnavailable, "PreemptionByScheduler: for another Pod [2J", false},
		"deleted":        {deleted, fumehood.ErrUnavailable, "deleted", false},
		"something else": {failed("New", "text"), fumehood.ErrUnavailable, "New text", false},
	} {
		d := deathOf(c.pod, serviceName)
		if !errors.Is(d.Err, c.class) || errors.Is(d.Err, fumehood.ErrBroken) != errors.Is(c.class, fumehood.ErrBroken) || !strings.Contains(d.Err.Error(), c.text) || d.OutOfMemory != c.oom {
			t.Errorf("%s: %+v", name, d)
		}
	}
	running := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if d := deathOf(running, serviceName); d != (box.Death{}) {
		t.Errorf("running: %+v", d)
	}
}

// waiting returns a Pod whose container waits.
func waiting(reason, message string) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: serviceName, Image: "some/image", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}}
}

func TestHindrance(t *testing.T) {
	refused := &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
		Name: initName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "shut down the network interface eth0"}},
	}}}}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		class error
		text  string
	}{
		"no image":       {waiting("ErrImagePull", "not found"), fumehood.ErrConfig, "some/image: ErrImagePull: not found"},
		"image again":    {waiting("ImagePullBackOff", "not found"), fumehood.ErrConfig, "not found"},
		"image's name":   {waiting("InvalidImageName", ""), fumehood.ErrConfig, "InvalidImageName"},
		"no folder":      {waiting("RunContainerError", "chdir to cwd: not a directory"), fumehood.ErrConfig, "not a directory"},
		"registry":       {waiting("ErrImagePull", "dial tcp: i/o timeout"), fumehood.ErrUnavailable, "i/o timeout"},
		"runtime":        {waiting("RunContainerError", "shim died"), fumehood.ErrInfrastructure, "shim died"},
		"init container": {refused, fumehood.ErrInfrastructure, "eth0"},
		"still pulling":  {waiting("ContainerCreating", ""), nil, ""},
		"nothing known":  {&corev1.Pod{}, nil, ""},
	} {
		err := hindrance(c.pod)
		if c.class == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPendingReason(t *testing.T) {
	unschedulable := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient memory.",
	}}}}
	for want, pod := range map[string]*corev1.Pod{
		"0/1 nodes are available: 1 Insufficient memory.": unschedulable,
		"some/image: ContainerCreating":                   waiting("ContainerCreating", ""),
		"does not report":                                 nil,
		"pending":                                         {},
	} {
		if got := pendingReason(pod); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	if err := explain(errors.New("connection refused")); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("no answer: %v", err)
	}
}
