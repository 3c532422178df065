package provider_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/fake"
)

func TestDetached_limit(t *testing.T) {
	provider := fake.New(fake.Options{Programs: map[string]fake.Program{
		"true": func(context.Context, *fake.Proc) int { return 0 },
	}})
	sb, err := provider.Start(t.Context(), fumehood.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	t.Cleanup(func() {
		if err := sb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	cmd := fumehood.Cmd{Args: []string{"true"}, Detach: true}
	for range 3 { // failed starts do not count
		_, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"no-such-program"}, Detach: true})
		if !errors.Is(err, fumehood.ErrProgramNotFound) || len(sb.Processes()) != 0 {
			t.Fatalf("%v, and %d are listed", err, len(sb.Processes()))
		}
	}
	for i := range fumehood.MaxDetached {
		if _, err := sb.Start(t.Context(), cmd); err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
	}
	var e *fumehood.Error
	if _, err := sb.Start(t.Context(), cmd); !errors.Is(err, fumehood.ErrLimit) || !errors.As(err, &e) || e.Hint == "" {
		t.Errorf("one more: %v", err)
	}
	all := sb.Processes()
	if len(all) != fumehood.MaxDetached {
		t.Fatalf("%d are listed", len(all))
	}
	last := 0
	for _, p := range all {
		if p.Info().ID <= last {
			t.Errorf("%d comes after %d", p.Info().ID, last)
		}
		last = p.Info().ID
	}
	if _, err := all[7].Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := all[7].Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := sb.Start(t.Context(), cmd)
	if err != nil || p.Info().ID <= last {
		t.Errorf("after one was forgotten: %+v, %v", p, err)
	}
}
