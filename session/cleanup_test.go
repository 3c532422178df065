package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session"
)

// abandon marks a folder as belonging to a process that has ended.
func abandon(t *testing.T, folder string) {
	t.Helper()
	file := filepath.Join(folder, "owner")
	mark, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// A process with another start time is another process.
	if err := os.WriteFile(file, []byte(strings.TrimRight(string(mark), "0123456789")+"1"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCleanup_deadProcesses(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	s := p.open(t, p.environment(t), session.Agent, nil)
	living := filepath.Dir(s.Workspace())
	mark, err := os.ReadFile(filepath.Join(living, "owner"))
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(p.state, "session-dead")
	locked := filepath.Join(dead, "work", "locked")
	if err := os.MkdirAll(filepath.Join(locked, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dead, "owner"), mark, 0o600); err != nil {
		t.Fatal(err)
	}
	abandon(t, dead)
	if err := os.Chmod(locked, 0); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		found, err := session.Cleanup(t.Context(), nil, p.state, provider.CleanupOptions{DryRun: dry})
		if err != nil || len(found) != 2 {
			t.Fatalf("%+v, %v", found, err)
		}
		for _, l := range found {
			if want := l.Name == dead; l.Remove != want || l.Removed != (want && !dry) {
				t.Errorf("dry %v: %+v", dry, l)
			}
		}
	}
	if _, err := os.Stat(dead); err == nil {
		t.Error("the folder of the dead process still exists")
	}
	if _, err := os.Stat(living); err != nil {
		t.Error(err)
	}
}
