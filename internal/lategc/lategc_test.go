package lategc

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// atStart is the value of GOGC before the first collection.
var atStart int

func init() { atStart = now() }

func now() int {
	gogc := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(gogc)
	return int(gogc[0].Value.Uint64())
}

func TestInit(t *testing.T) {
	if atStart != percent && os.Getenv("GOGC") == "" {
		t.Errorf("GOGC is %d at the start, want %d", atStart, percent)
	}
}

func TestDelay(t *testing.T) {
	runtime.GC()
	for deadline := time.Now().Add(10 * time.Second); now() == percent; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the first collection did not bring the value back")
		}
	}
	old := debug.SetGCPercent(90)
	defer debug.SetGCPercent(old)
	collected(t, delay())
	if now() != 90 {
		t.Errorf("GOGC is %d after a collection, want 90 as before", now())
	}
	done := delay()
	debug.SetGCPercent(25)
	collected(t, done)
	if now() != 25 {
		t.Errorf("GOGC is %d after a collection, want the 25 that the program set", now())
	}
}

func collected(t *testing.T, done <-chan struct{}) {
	t.Helper()
	runtime.GC()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a collection did not bring the value back")
	}
}
