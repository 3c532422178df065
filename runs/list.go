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

// NewName returns a name for the folder of a new run: the time, the valid part of the task's name, and random
// characters that make it unique.
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
	Recorded int  // number of results
	Finished bool // it has a summary
	Live     bool // a process is writing it
}

// List returns the runs in dir, newest first. It ignores other folders and files. A missing dir contains no runs.
// Runs that cannot be read are reported as errors; the others are returned all the same.
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

// live reports whether a process is writing the run. A process on another machine, whose state is unknown, counts
// as alive.
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

// count returns the number of lines in the results, without parsing them.
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

// Below returns the folders of runs in dir and below it, including broken ones. It follows no links and ignores
// what cannot be read.
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
