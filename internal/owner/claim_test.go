package owner

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// claimOf returns the file for an owner's claim in a test.
func claimOf(dir string, id ID) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%d-%d", filepath.Base(id.Host), id.PID, id.Start))
}

// elsewhere returns an owner that cannot be judged from here.
func elsewhere(n int) ID { return ID{Host: "elsewhere", Boot: "b", PIDNS: "p", PID: n + 1, Start: 1} }

func TestClaims_tornFiles(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "owners")
	now := time.Now()
	if got := Claims(dir, self, now); len(got) != 0 {
		t.Errorf("missing folder: %v", got)
	}
	ended := self
	ended.Start++
	for id, until := range map[ID]time.Time{
		self: now.Add(time.Hour), elsewhere(1): now.Add(-time.Hour), elsewhere(2): now.Add(-2 * forgetAfter), ended: now.Add(time.Hour),
	} {
		if err := claim(claimOf(dir, id), id, now); err != nil { // replaced by the later claim
			t.Fatal(err)
		}
		if err := claim(claimOf(dir, id), id, until); err != nil {
			t.Fatal(err)
		}
	}
	if err := claim(filepath.Join(dir, "another"), self, now.Add(time.Minute)); err != nil { // the latest claim counts
		t.Fatal(err)
	}
	for name, text := range map[string]string{"torn": "v1 elsew", "empty": "", "none": "nobody"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), now.Add(time.Hour), now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	got := Claims(dir, self, now)
	if len(got) != 2 || !got[self.String()].Equal(now.Add(time.Hour)) || !got[elsewhere(1).String()].Equal(now.Add(-time.Hour)) {
		t.Errorf("got %v", got)
	}
	for id, want := range map[ID]bool{self: true, elsewhere(1): true, elsewhere(2): false, ended: false} {
		if _, err := os.Stat(claimOf(dir, id)); (err == nil) != want {
			t.Errorf("claim of %v exists: %v", id, err == nil)
		}
	}
	if err := os.Remove(claimOf(dir, elsewhere(1))); err != nil {
		t.Fatal(err)
	}
	if err := claim(claimOf(dir, elsewhere(1)), elsewhere(1), now.Add(time.Hour)); err != nil { // the file was removed meanwhile
		t.Fatal(err)
	}
	if got := Claims(dir, self, now)[elsewhere(1).String()]; !got.Equal(now.Add(time.Hour)) {
		t.Errorf("claimed again until %v", got)
	}
}

func TestClaims_concurrent(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	dir, until := t.TempDir(), time.Now().Add(time.Hour)
	const owners, rounds = 8, 100
	for n := range owners {
		if err := claim(claimOf(dir, elsewhere(n)), elsewhere(n), until); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for n := range owners {
		wg.Go(func() {
			for range rounds {
				if err := claim(claimOf(dir, elsewhere(n)), elsewhere(n), until); err != nil {
					t.Error(err)
				}
				all := Claims(dir, self, time.Now())
				for other := range owners {
					if !all[elsewhere(other).String()].Equal(until) {
						t.Errorf("%d: the claim of %d is %v", n, other, all[elsewhere(other).String()])
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestAttend_untilLastLeaves(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var leave []func() error
	for range 2 {
		l, err := Attend(dir)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	for i, want := range []bool{true, false} {
		if until := Claims(dir, self, time.Now())[self.String()]; until.Before(time.Now().Add(claimLength / 2)) {
			t.Errorf("%d: claim until %v", i, until)
		}
		if err := leave[i](); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || (len(left) > 0) != want {
			t.Errorf("%d: folder contains %v, %v", i, left, err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Attend(file); err == nil {
		t.Error("claimed although the folder is a file")
	}
}
