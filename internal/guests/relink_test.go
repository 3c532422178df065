package guests

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
)

// failing is a Host whose first starts of a guest fail after a while.
type failing struct {
	*host
	fails int
}

func (f *failing) Exec(ctx context.Context, user string) (Exec, error) {
	time.Sleep(10 * time.Second)
	if f.fails--; f.fails >= 0 {
		return nil, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: errors.New("no daemon")}
	}
	return f.host.Exec(ctx, user)
}

// What a start met before a call is not the call's error: the daemon may be back since.
func TestManager_at_earlierAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &failing{host: &host{}, fails: 1}
		m := managed(t, h.host)
		defer m.Close()
		m.cfg.Host = h
		first := make(chan error, 1)
		go func() {
			_, err := m.Of(t.Context(), "user")
			first <- err
		}()
		time.Sleep(5 * time.Second)
		if _, err := m.Of(t.Context(), "user"); err != nil {
			t.Errorf("a later call: %v", err)
		}
		if err := <-first; !errors.Is(err, fumehood.ErrInfrastructure) {
			t.Errorf("the first call: %v", err)
		}
	})
}
