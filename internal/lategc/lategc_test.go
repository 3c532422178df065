package lategc_test

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	_ "github.com/fumehood/fumehood/internal/lategc"
)

func TestInit_restored(t *testing.T) {
	runtime.GC()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		if now == 100 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d after a collection, want 100", now)
		}
	}
}
