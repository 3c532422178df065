package docker

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestFirstToday(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	day := time.Date(2026, 3, 31, 23, 59, 59, 0, time.UTC)
	var firsts atomic.Int32
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if firstToday("one", day) {
				firsts.Add(1)
			}
		})
	}
	all.Wait()
	if n := firsts.Load(); n != 1 {
		t.Errorf("%d of 32 calls are the first", n)
	}
	if !firstToday("two", day) || firstToday("two", day) {
		t.Error("names are not told apart")
	}
	if !firstToday("one", day.Add(time.Second)) || firstToday("one", day.Add(time.Hour)) {
		t.Error("days are not told apart")
	}
	files, err := os.ReadDir(filepath.Join(state, "fumehood", "warned"))
	if err != nil || len(files) != 2 {
		t.Errorf("%d files are left: %v", len(files), err)
	}
}
