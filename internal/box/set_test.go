package box

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
)

// A start that is under way when the set is closed ends, and what it has made is closed afterwards.
func TestSet_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		ctx, p, err := s.Begin(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ended, closed := false, false
		go func() {
			<-ctx.Done()
			if !IsClosed(ctx) {
				t.Error(context.Cause(ctx))
			}
			p.Hold(func(context.Context) error {
				closed = true
				p.Leave()
				return nil
			})
			time.Sleep(time.Second) //nolint:forbidigo // in synctest's clock
			ended = true
			p.Settle()
		}()
		if err := s.Close(t.Context()); err != nil || !ended || !closed {
			t.Error(err, ended, closed)
		}
		if _, _, err := s.Begin(t.Context(), ""); !errors.Is(err, fumehood.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// What could not be closed is closed by another call, and what is closed is not closed again.
func TestSet_Close_again(t *testing.T) {
	t.Parallel()
	var s Set
	calls, failure := [3]int{}, errors.New("the daemon does not answer")
	for i := range calls {
		_, p, err := s.Begin(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		p.Hold(func(context.Context) error {
			if calls[i]++; i == 1 && calls[i] == 1 {
				return failure
			}
			p.Leave()
			return nil
		})
		p.Settle()
	}
	if err := s.Close(t.Context()); !errors.Is(err, failure) {
		t.Error(err)
	}
	for range 2 {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if calls != [3]int{1, 2, 1} {
		t.Error(calls)
	}
}

func TestSet_Begin(t *testing.T) {
	t.Parallel()
	var s Set
	_, p, err := s.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Begin(t.Context(), "a"); !errors.Is(err, fumehood.ErrConfig) {
		t.Error(err)
	}
	p.Settle() // a start that failed before it made anything
	if p.Leave() {
		t.Error("its place was not given back")
	}
	ctx, p, err := s.Begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	p.Hold(func(context.Context) error { return nil })
	if !p.Leave() || p.Leave() {
		t.Error("the first of two calls of Leave is not the first")
	}
	p.Settle()
	if ctx.Err() == nil || IsClosed(ctx) {
		t.Error("the start's context does not end with it")
	}
}

// A sandbox whose start has ended is closed, even if its turn comes when the time is up.
func TestSet_settled(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		var s Set
		_, p, err := s.Begin(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		p.Hold(func(context.Context) error { return nil })
		if s.Close(ended) == nil {
			t.Fatal("a start counts as ended although it is in progress")
		}
		p.Settle()
		if err := s.Close(ended); err != nil {
			t.Fatal(err)
		}
	}
}
