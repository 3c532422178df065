package box

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fumehood/fumehood"
)

// failing is a Host whose first starts of a guest fail after a while.
type failing struct {
	*fakeUnit
	fails int
}

func (f *failing) Exec(ctx context.Context, user string) (Exec, error) {
	time.Sleep(10 * time.Second) //nolint:forbidigo // of the bubble's clock
	if f.fails--; f.fails >= 0 {
		return nil, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: errors.New("no daemon")}
	}
	return f.fakeUnit.Exec(ctx, user)
}

// What a start met before a call is not the call's error: the daemon may be back since.
func TestGuests_at_earlierAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &failing{fakeUnit: &fakeUnit{}, fails: 1}
		m := managed(t, h.fakeUnit)
		defer m.Close()
		m.cfg.Unit = h
		first := make(chan error, 1)
		go func() {
			_, err := m.Of(t.Context(), "user")
			first <- err
		}()
		time.Sleep(5 * time.Second) //nolint:forbidigo // of the bubble's clock
		if _, err := m.Of(t.Context(), "user"); err != nil {
			t.Errorf("a later call: %v", err)
		}
		if err := <-first; !errors.Is(err, fumehood.ErrInfrastructure) {
			t.Errorf("the first call: %v", err)
		}
	})
}

// unreachable is a Host whose daemon is gone after the start.
type unreachable struct {
	*fakeUnit
	attempts []time.Time
}

func (u *unreachable) Relay(context.Context, string) (Exec, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.attempts = append(u.attempts, time.Now())
	return nil, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: errors.New("no daemon")}
}

// count returns how many attempts there were, and the longest pause between two.
func (u *unreachable) count() (n int, longest time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, at := range u.attempts[1:] {
		longest = max(longest, at.Sub(u.attempts[i]))
	}
	return len(u.attempts), longest
}

// cut returns a Guests whose connection to the main process was cut.
func cut(t *testing.T) (*Guests, *unreachable) {
	t.Helper()
	h := &unreachable{fakeUnit: &fakeUnit{}}
	m := managed(t, h.fakeUnit)
	m.cfg.Unit, m.cfg.Serves = h, true
	if err := m.Attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.execs[0].end(0)
	synctest.Wait()
	return m, h
}

func TestGuests_relink(t *testing.T) {
	t.Parallel()
	t.Run("in the background", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, h := cut(t)
			defer m.Close()
			began := time.Now()
			time.Sleep(time.Hour) //nolint:forbidigo // of the bubble's clock
			n, longest := h.count()
			if first := h.attempts[1].Sub(h.attempts[0]); n < 20 || n > 60 || first < firstPause/2 || first > firstPause || longest < longestPause/2 || longest > longestPause {
				t.Errorf("%d attempts, the first pause %v, the longest %v", n, first, longest)
			}
			if took := h.attempts[n-1].Sub(began); took > holdFor {
				t.Errorf("the last attempt after %v", took)
			}
		})
	})
	t.Run("for a command", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, _ := cut(t)
			defer m.Close()
			began := time.Now()
			_, err := m.Own(t.Context())
			if took := time.Since(began); took != commandWithin || !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), CutReason) {
				t.Errorf("after %v: %v", took, err)
			}
		})
	})
	t.Run("until the sandbox is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, _ := cut(t)
			began := time.Now()
			time.AfterFunc(time.Second, m.Close)
			if _, err := m.Own(t.Context()); !errors.Is(err, errGuestsClosed) || time.Since(began) != time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			m.Close()
		})
	})
	t.Run("not to a dead service", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, h := cut(t)
			defer m.Close()
			gone := &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New("it has died")}
			if err := m.lasting(t.Context(), errNobody); !errors.Is(err, errNobody) {
				t.Errorf("no listener: %v", err)
			}
			h.death = Death{Err: gone}
			if err := m.lasting(t.Context(), errNobody); !errors.Is(err, gone) {
				t.Errorf("dead: %v", err)
			}
		})
	})
}
