package conformance

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// CheckManyCommands runs n commands at once in a sandbox whose limit on processes is above n. The image needs the
// program sleep. What supervises the commands must not use up the limit.
func CheckManyCommands(t *testing.T, sb fumehood.Sandbox, n int) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for range n {
		wg.Go(func() {
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sleep", "5"}})
			end := fmt.Sprint(err)
			if err == nil {
				end = fmt.Sprintf("%s %d %s", res.Outcome, res.ExitCode, res.Reason)
			}
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
		})
	}
	wg.Wait()
	if ends["exited 0 "] != n {
		t.Errorf("%d commands at once: %v", n, ends)
	}
}

// CheckProcessLimit uses up the limit on processes of a sandbox, which is limit, and checks what later commands return. The
// image needs a shell. Users are those who run commands then.
func CheckProcessLimit(t *testing.T, sb fumehood.Sandbox, limit int, users ...string) {
	t.Helper()
	const use = `while true; do sleep 1000 & done 2>/dev/null`
	hog, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "trap '' TERM; sh -c '" + use + "'; sleep 1000 & echo full > /tmp/full; wait"}, Grace: fumehood.NoGrace})
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the processes are used up", func() bool {
		_, err := sb.ReadFile(t.Context(), "/tmp/full", fumehood.ReadOptions{})
		return err == nil
	})
	for range 3 {
		for _, user := range users {
			res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}})
			_, named := errors.AsType[*provider.ProcessLimit](err)
			if !errors.Is(err, fumehood.ErrLimit) || errors.Is(err, fumehood.ErrUnavailable) || !named || !strings.Contains(err.Error(), fmt.Sprintf("limit of %d processes", limit)) {
				t.Fatalf("a command of %q at the limit: %+v, %v", user, res, err)
			}
		}
	}
	if _, err := sb.ReadFile(t.Context(), "/tmp/full", fumehood.ReadOptions{}); err != nil {
		t.Errorf("a file at the limit: %v", err)
	}
	if err := hog.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := hog.Wait(t.Context()); err != nil || res.Outcome != fumehood.Signaled || res.Leaked {
		t.Errorf("the killed command: %+v, %v", res, err)
	}
	for _, user := range users {
		if res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}, Timeout: time.Minute}); err != nil || !res.Success() {
			t.Errorf("a command of %q after the kill: %+v, %v", user, res, err)
		}
	}
}
