package runs

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood/internal/archive"
	"github.com/fumehood/fumehood/internal/owner"
)

// NewName is a name for the folder of a run that begins now: the time, what of the task's name can be a file's, and
// some characters that no other run has.
func NewName(task string, now time.Time) string {
	task = notInName.ReplaceAllString(task, "-")
	const longest = 60
	task = strings.Trim(task[:min(longest, len(task))], "-")
	return now.UTC().Format("20060102-150405") + "-" + cmp.Or(task, "task") + "-" + strings.ToLower(rand.Text()[:5])
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_]`)

// Entry is a run in a list.
type Entry struct {
	*Folder
	Recorded int  // results
	Finished bool // it has a summary
	Live     bool // a process is writing it
}

// List finds the runs whose folders are in dir, the newest first. Other folders, and files, are passed over. A dir that is
// not there has none. Those that cannot be read are errors; the others are listed all the same.
func List(dir string) ([]Entry, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("list runs", dir, err)
	}
	var all []Entry
	var bad []error
	for _, n := range names {
		of := filepath.Join(dir, n.Name())
		if _, err := os.Stat(filepath.Join(of, aboutFile)); err != nil {
			continue
		}
		f, err := Read(of)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		e := Entry{Folder: f, Live: f.live()}
		_, err = os.Stat(f.path(summaryFile))
		e.Finished = err == nil
		if e.Recorded, err = f.count(); err != nil {
			bad = append(bad, failed("list runs", of, err))
			continue
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return b.about.Created.Compare(a.about.Created) })
	return all, errors.Join(bad...)
}

// live says whether a process writes the run. One of another machine, of which nothing is known, counts as one.
func (f *Folder) live() bool {
	text, err := os.ReadFile(f.path(ownerFile))
	if err != nil {
		return false
	}
	id, err := owner.Parse(string(text))
	if err != nil {
		return false
	}
	self, err := owner.Self()
	return err == nil && owner.Judge(self, id) != owner.Dead
}

// count is how many lines of results there are, without reading what they say.
func (f *Folder) count() (int, error) {
	file, err := archive.OpenRegular(f.path(resultsFile))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	n := 0
	for buf := make([]byte, 1<<16); ; {
		read, err := file.Read(buf)
		n += bytes.Count(buf[:read], []byte("\n"))
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// Below finds the folders of runs in dir and below it, broken ones too. No link is followed, and what cannot be read is
// passed over.
func Below(dir string) ([]string, error) {
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil //nolint:nilerr // what cannot be read here, no build reads either
		}
		for _, name := range []string{taskFile, resultsFile} {
			if !there(filepath.Join(path, aboutFile)) || !there(filepath.Join(path, name)) {
				continue
			}
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, failed("look for runs", dir, err)
	}
	return found, nil
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
