package runs

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/hostpath"
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
	Recorded int           // number of results, without canceled attempts
	PassRate *Rate         // of the attempts with a score; nil if there are none
	Duration time.Duration // as Summary.Duration
	Finished bool          // it has a summary
	Live     bool          // a process is writing it
}

// List returns the runs in dir, newest first. It ignores other folders and files. A missing dir contains no runs.
// Runs that cannot be read are reported as errors; the others are returned all the same. Of a finished run it reads only
// the summary.
func List(dir string) ([]Entry, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, pathError("list runs", dir, err)
	}
	var all []Entry
	var bad []error
	for _, n := range names {
		path := filepath.Join(dir, n.Name())
		if _, err := os.Stat(filepath.Join(path, aboutFile)); err != nil {
			continue
		}
		e, err := ReadEntry(path)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return b.about.Created.Compare(a.about.Created) })
	return all, errors.Join(bad...)
}

// ReadEntry returns the entry of one run in a list.
func ReadEntry(dir string) (Entry, error) {
	f, err := Read(dir)
	if err != nil {
		return Entry{}, err
	}
	s, finished := f.finalSummary()
	if s == nil {
		now, err := f.Summary()
		if err != nil {
			return Entry{}, err
		}
		s = &now
	}
	return Entry{
		Folder: f, Recorded: s.Recorded - s.Errors[task.Canceled], PassRate: s.PassRate, Duration: time.Duration(s.Duration * float64(time.Second)),
		Finished: finished, Live: f.live(),
	}, nil
}

// The states of runs.
const (
	Running     = "running"     // a process is writing it
	Finished    = "finished"    // all attempts are recorded
	Interrupted = "interrupted" // it can be resumed
)

// State returns the state of the run.
func (e Entry) State() string {
	switch {
	case e.Live:
		return Running
	case e.Finished && e.Recorded >= e.about.Attempts:
		return Finished
	}
	return Interrupted
}

// maxOwner is the maximum size of the file that identifies a process, in bytes.
const maxOwner = 1 << 10

// live reports whether a process is writing the run. A process on another machine, whose state is unknown, counts
// as alive.
func (f *Folder) live() bool {
	text, err := hostpath.ReadFile(f.path(ownerFile), maxOwner)
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

// finalSummary returns the summary that the run has ended with, and whether there is one. It is nil if it cannot be read or
// contradicts itself: it is then made from the results, which takes longer.
func (f *Folder) finalSummary() (s *Summary, exists bool) {
	text, err := hostpath.ReadFile(f.path(summaryFile), maxLine)
	if err != nil {
		return nil, !errors.Is(err, fs.ErrNotExist)
	}
	s = &Summary{}
	if json.Unmarshal(text, s) != nil || s.Passed < 0 || s.Failed < 0 || s.Recorded > f.about.Attempts || !(s.Duration >= 0 && s.Duration <= maxDuration) {
		return nil, true
	}
	errs := 0
	for _, n := range s.Errors {
		if errs += n; n < 0 {
			return nil, true
		}
	}
	if s.Passed+s.Failed+errs != s.Recorded || s.Recorded > 0 && s.Duration == 0 {
		return nil, true
	}
	if s.PassRate = nil; s.Passed+s.Failed > 0 {
		r := rate(s.Passed, s.Passed+s.Failed)
		s.PassRate = &r
	}
	return s, true
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
		return nil, pathError("look for runs", dir, err)
	}
	return found, nil
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
