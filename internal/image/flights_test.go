package image

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestShared_onceForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Flights
		var calls atomic.Int64
		release := make(chan struct{})
		results := make(chan int, 10)
		for range 10 {
			go func() {
				n, err := Share(t.Context(), &g, "key", func(context.Context) (int, error) {
					calls.Add(1)
					<-release
					return 42, nil
				})
				if err != nil {
					t.Error(err)
				}
				results <- n
			}()
		}
		synctest.Wait()
		close(release)
		for range 10 {
			if n := <-results; n != 42 {
				t.Errorf("got %d", n)
			}
		}
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

func TestShared_callerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Flights
		var over atomic.Bool
		call := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			<-time.After(time.Minute) // it cleans up
			over.Store(true)
			return "", context.Cause(ctx)
		}
		first, leaveFirst := context.WithCancel(t.Context())
		second, leaveSecond := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, ctx := range []context.Context{first, second} {
			go func() {
				_, err := Share(ctx, &g, "key", call)
				ended <- err
			}()
			synctest.Wait()
		}
		leaveFirst()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the first got %v", err)
		}
		synctest.Wait()
		if g.all["key"] == nil {
			t.Fatal("the call ended although a caller waits")
		}
		leaveSecond()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the second got %v", err)
		}
		if !over.Load() {
			t.Error("the last caller left before the call has ended")
		}
		synctest.Wait()
		if g.all["key"] != nil {
			t.Error("the call continues although no caller waits")
		}
	})
}
