package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/fumehood/fumehood/internal/box"
)

// seenWithin bounds the inspection of a container whose guest does not answer.
const seenWithin = 5 * time.Second

// diagnose adds diagnostics to the error about a guest that does not answer: the state of its container, the runtime, and
// what the guest wrote to its standard error.
func (s *service) diagnose(ctx context.Context, err error, complaint string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), seenWithin)
	defer cancel()
	finding := "its container cannot be inspected"
	if state, ierr := s.sb.p.engine.Inspect(ctx, s.id); ierr == nil {
		finding = "its container is " + state.Status
		if state.Status == "exited" {
			finding += fmt.Sprintf(" with code %d", state.ExitCode)
		}
		if state.Runtime != "" {
			finding += ", under the runtime " + state.Runtime
		}
	}
	return box.Saying(fmt.Errorf("%w; %s", err, finding), complaint)
}
