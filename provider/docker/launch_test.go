package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/internal/box"
)

// A guest whose connection was cut exits with code 0, perhaps before the start has seen it run.
func TestEarlyExitError(t *testing.T) {
	for code, cut := range map[int]bool{0: true, 1: false} {
		err := earlyExitError(box.State{Exit: code})
		if _, lost := errors.AsType[box.Lost](err); lost != cut || strings.Contains(err.Error(), box.CutReason) != cut {
			t.Errorf("code %d: %v", code, err)
		}
	}
}
