package engine

import (
	"slices"
	"testing"

	"github.com/moby/moby/api/types/container"
)

func TestUnheld(t *testing.T) {
	const discarded = "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded."
	got := limitWarnings([]string{
		"The requested image's platform (linux/arm64) does not match the detected host platform (linux/amd64) and no specific platform was requested",
		discarded, "Published ports are discarded when using host network mode", "what nobody has heard of",
	})
	if want := []string{discarded, "what nobody has heard of"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDropped(t *testing.T) {
	n := int64(64)
	asked := &container.HostConfig{Resources: container.Resources{Memory: 1, MemorySwap: 1, PidsLimit: &n, NanoCPUs: 1}}
	if got := droppedWarnings(asked, asked); got != nil {
		t.Errorf("limits kept: %q", got)
	}
	if got := droppedWarnings(asked, &container.HostConfig{}); len(got) != 4 {
		t.Errorf("limits lost: %q", got)
	}
	if got := droppedWarnings(&container.HostConfig{}, &container.HostConfig{}); got != nil {
		t.Errorf("no limits: %q", got)
	}
}
