package box

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// brokenDriver finds no sandbox, since it cannot list any.
type brokenDriver struct{ Driver }

func (brokenDriver) Find(context.Context, string, bool) ([]Found, error) {
	return nil, fumehood.ErrUnavailable
}

func TestLife_emptyName(t *testing.T) {
	l := Life{Driver: brokenDriver{}}
	_, opened := l.OpenKept(t.Context(), "")
	_, renewed := l.Renew(t.Context(), "", time.Hour)
	for op, err := range map[string]error{"open": opened, "renew": renewed, "logs": l.Logs(t.Context(), "", "", provider.LogOptions{}, nil)} {
		if !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v, want an ErrConfig", op, err)
		}
	}
}
