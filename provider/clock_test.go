package provider

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClock_pause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		over := make(chan time.Duration, 2)
		c := startClock(10*time.Second, func() { over <- time.Since(began) })
		<-time.After(4 * time.Second)
		first, second := c.pause(), c.pause()
		<-time.After(time.Hour)
		first()
		first()
		<-time.After(time.Hour)
		second()
		if got := <-over; got != 2*time.Hour+10*time.Second {
			t.Errorf("over after %v", got)
		}
		c.pause()() // when it is over
		c.stop()
		synctest.Wait()
	})
}

func TestClock_stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startClock(time.Second, func() { t.Error("expired") })
		resume := c.pause()
		c.stop()
		resume()
		<-time.After(time.Hour)
	})
}
