package owner

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A claim is a file by which a process shows that it lives. It is for processes that see the file but cannot see the
// process: on other machines with the same home, or in other PID namespaces. The file contains the text form of the
// owner's ID. Its modification time is the time until which the owner is assumed to live. So a renewal is never seen
// incomplete.

const (
	// beat is the interval at which a process renews its claim.
	beat = time.Minute
	// claimLength is how long each claim lasts. A few renewals may be late.
	claimLength = 10 * time.Minute
	// forgetAfter is how long an expired claim is kept if its owner cannot be judged.
	forgetAfter = 30 * 24 * time.Hour
)

// Attend makes this process claim that it lives, in a file in dir, until leave is called. dir need not exist. leave
// must be called once. The error is that of the first claim. Errors of renewals are ignored, because a claim only adds
// to what else is known.
func Attend(dir string) (leave func() error, err error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, rand.Text()) // one file per caller, because they end independently
	if err := claim(file, self, time.Now().Add(claimLength)); err != nil {
		return nil, err
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-ticker.C:
				_ = claim(file, self, now.Add(claimLength)) // the next renewal retries
			}
		}
	}()
	return func() error {
		close(stop)
		<-stopped
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}, nil
}

// claim records in a file that the owner lives at least until the given time.
func claim(file string, id ID, until time.Time) error {
	err := os.Chtimes(file, until, until)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	err = os.WriteFile(file, []byte(id.String()), 0o600)
	if err == nil {
		err = os.Chtimes(file, until, until)
	}
	if err != nil {
		_ = os.Remove(file) // it may be incomplete
	}
	return err
}

// Claims returns the time until which each owner claims to live, by the text form of its ID. It skips files that are
// incomplete, disappear meanwhile, or are not claims. It also removes the claims of owners that have ended.
func Claims(dir string, self ID, now time.Time) map[string]time.Time {
	entries, _ := os.ReadDir(dir) // on an error: what could be read
	all := map[string]time.Time{}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			continue
		}
		id, err := Parse(string(text))
		switch until := info.ModTime(); {
		case now.Sub(until) > forgetAfter, err == nil && Judge(self, id) == Dead:
			_ = os.Remove(file) // an error does not matter
		case err == nil && until.After(all[id.String()]):
			all[id.String()] = until
		}
	}
	return all
}
