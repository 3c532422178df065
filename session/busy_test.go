package session_test

import (
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session"
)

// A busy runtime is no mistake of the configuration: the same call succeeds when the command has ended.
func TestErrBusy_class(t *testing.T) {
	p := inLocal(t)
	s := p.open(t, p.environment(t), session.Agent, nil)
	r := spawn(t, s, session.SpawnOptions{})
	for _, err := range r.Stream(t.Context(), sh("echo here; exec sleep 60")) {
		if err != nil {
			t.Fatal(err)
		}
		_, err1 := r.Execute(t.Context(), sh("true"))
		_, err2 := s.FinishCheckpoint(t.Context())
		for _, err := range []error{err1, err2, s.Reset(t.Context())} {
			if !errors.Is(err, session.ErrBusy) || !errors.Is(err, fumehood.ErrLimit) || errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("got %v of class %v", err, fumehood.ClassOf(err))
			}
		}
		break
	}
}
