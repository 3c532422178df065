package lategc_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	_ "github.com/fumehood/fumehood/internal/lategc"
)

// atStart is the value of GOGC before the first collection.
var atStart = percent()

func percent() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestInit(t *testing.T) {
	if atStart != 800 && os.Getenv("GOGC") == "" {
		t.Errorf("GOGC is %d at the start, want 800", atStart)
	}
	runtime.GC()
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		now := percent()
		if now == 100 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d after a collection, want 100", now)
		}
	}
}
