package owner

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A claim is what a process says of itself, in a file of its own: for those who see its files, and cannot judge it by
// its process: on other machines with the same home, or in other PID namespaces. The file holds the text form of the
// owner's ID, and its modification time is until when the owner lives at least. So who reads sees a claim whole.

const (
	// beat is how often a process renews its claim that it lives.
	beat = time.Minute
	// claimLength is how long each claim lasts: a few may be late.
	claimLength = 10 * time.Minute
	// forgetAfter is how long after its end a claim of an owner that cannot be judged is kept.
	forgetAfter = 30 * 24 * time.Hour
)

// Attend has this process claim in dir, which need not exist, that it lives, until leave is called, once. The error is
// that of the first claim; those that come later do without, for a claim only ever adds to what else is known.
func Attend(dir string) (leave func() error, err error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, rand.Text()) // one for each caller: the others may stay
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
				_ = claim(file, self, now.Add(claimLength)) // the next one tries again
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

// claim writes down in a file that the owner lives until then.
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
		_ = os.Remove(file) // it may be torn
	}
	return err
}

// Claims returns, by the text forms of owners, until when each has said that it lives. What is torn, vanishes meanwhile
// or is no claim is left out. On the way it removes the claims of owners that have ended.
func Claims(dir string, self ID, now time.Time) map[string]time.Time {
	entries, _ := os.ReadDir(dir) // none, or what could be read
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
			_ = os.Remove(file) // it does not matter
		case err == nil && until.After(all[id.String()]):
			all[id.String()] = until
		}
	}
	return all
}
