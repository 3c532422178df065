//go:build unix

package session_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/session"
)

func TestSession_Open_sweeps(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	living := filepath.Dir(p.open(t, p.environment(t), session.Agent, nil).Workspace())
	made := func(name string, kept bool) string {
		dir, err := owner.MakeFolder(p.state, name, kept)
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, "work", "locked", "below"), 0o700)
		}
		if err == nil {
			err = os.Chmod(filepath.Join(dir, "work", "locked"), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dead, kept, foreign := made("session-dead", false), made("session-kept", true), made("session-foreign", false)
	abandon(t, dead)
	abandon(t, kept)
	mark := filepath.Join(foreign, "owner")
	text, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(text))
	words[1] = "other/machine" // whose processes cannot be judged
	if err := os.WriteFile(mark, []byte(strings.Join(words, " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	s := p.open(t, p.environment(t), session.Agent, nil)
	left, err := os.ReadDir(p.state)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, filepath.Join(p.state, e.Name()))
	}
	want := []string{living, kept, foreign, filepath.Dir(s.Workspace())}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// A link in place of a dead session's folder is not followed.
func TestSession_Open_sweepsNoLink(t *testing.T) {
	t.Parallel()
	p := inLocal(t)
	outside := folder(t, map[string]string{"work/file": "x"})
	dead, err := owner.MakeFolder(p.state, "session-dead", false)
	if err != nil {
		t.Fatal(err)
	}
	abandon(t, dead)
	if err := os.Symlink(outside, filepath.Join(dead, "work")); err != nil {
		t.Fatal(err)
	}
	p.open(t, p.environment(t), session.Agent, nil)
	if _, err := os.Stat(filepath.Join(outside, "work", "file")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder still exists: %v", err)
	}
}
