package owner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// claim is what a process says of itself, in a file of its own: for those who see its files, and cannot judge it by
// its process: on other machines with the same home, or in other PID namespaces.
type claim struct {
	Owner string    `json:"owner"` // the text form of its ID
	Until time.Time `json:"until"` // it lives until then at least, and says so again before
}

// claimFile is the file of an owner's claim.
func claimFile(dir string, id ID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return filepath.Join(dir, hex.EncodeToString(sum[:10])+".json")
}

// Claim writes down in dir, which need not exist, that the owner lives until then. Who reads sees either the claim
// before or this one, whole.
func Claim(dir string, id ID, until time.Time) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text, err := json.Marshal(claim{Owner: id.String(), Until: until.UTC()})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".claim-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), claimFile(dir, id))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // perhaps it has its name already
	}
	return err
}

// Unclaim removes an owner's claim, if there is one.
func Unclaim(dir string, id ID) error {
	if err := os.Remove(claimFile(dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// forgetAfter is how long after its end a claim of an owner that cannot be judged is kept.
const forgetAfter = 30 * 24 * time.Hour

// Claims tells, by the text forms of owners, until when each has said that it lives. What is torn, vanishes meanwhile
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
		var c claim
		id, perr := ID{}, json.Unmarshal(text, &c)
		if perr == nil {
			id, perr = Parse(c.Owner)
		}
		switch {
		case perr != nil: // torn, or being written; an old one is nobody's any more
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > forgetAfter {
				_ = os.Remove(file) // it does not matter
			}
		case Judge(self, id) == Dead || now.Sub(c.Until) > forgetAfter:
			_ = os.Remove(file) // likewise
		default:
			all[c.Owner] = c.Until
		}
	}
	return all
}
