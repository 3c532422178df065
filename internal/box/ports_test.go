package box

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire/host"
)

// A service has a limit of connections, which those that fail do not count against.
func TestPorts_Dial_limit(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	f := NewPorts(func(context.Context) (*host.Guest, error) { return nil, lost }, slog.New(slog.DiscardHandler))
	for range mostDialed + 1 {
		if _, err := f.Dial(t.Context(), 80); !errors.Is(err, lost) {
			t.Fatal(err)
		}
	}
	f.dialed = mostDialed - 1
	if _, err := f.Dial(t.Context(), 80); !errors.Is(err, lost) {
		t.Error(err)
	}
	f.dialed = mostDialed
	if _, err := f.Dial(t.Context(), 80); !errors.Is(err, fumehood.ErrLimit) {
		t.Error(err)
	}
}
