// Package runs stores the results of a task's attempts in a folder, from which an interrupted run can be resumed.
//
//	r, err := runs.Create(dir, about, resolved) // or runs.Open(dir), to resume
//	defer r.Close()
//	options.Journal, how.Done = r.Journal, r.Done()
//	for res, err := range task.Run(ctx, options, how) {
//		err = r.Append(res)
//	}
//	summary, err := r.Finish()
//
// docs/runs.md describes the files. Every error is a *fumehood.Error: ErrConfig for a folder that is not a run or
// has a broken file, ErrUnavailable for a run that another process is writing, else ErrInfrastructure.
package runs

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// The files of a run's folder.
const (
	aboutFile    = "run.json"
	taskFile     = "task.yaml"
	resultsFile  = "results.jsonl"
	summaryFile  = "summary.json"
	lockFile     = "lock"  // held by the process that writes the run
	ownerFile    = "owner" // identifies that process
	journalsName = "journals"
	sourceName   = "source" // the task's files, of a task that was given as data
)

// About describes a run.
type About struct {
	Task     string    `json:"task"`     // name of the task
	Attempts int       `json:"attempts"` // planned attempts in all epochs
	Created  time.Time `json:"created"`  // zero means now

	// File is the task file, absolute or relative to the run's folder; empty if it is not known. Samples, Limit and Epochs are
	// those of eval.Options. With them a run can be resumed by its folder alone.
	File    string   `json:"file,omitempty"`
	Samples []string `json:"samples,omitempty"`
	Limit   int      `json:"limit,omitempty"`
	Epochs  int      `json:"epochs,omitempty"`
}

// SourceOf returns the folder in a run's folder that may hold the task's files.
func SourceOf(dir string) string { return filepath.Join(dir, sourceName) }

// Folder gives read access to a run's folder, also while the run is in progress. It keeps no file open.
type Folder struct {
	dir   string
	about About
}

// Read opens a run's folder for reading.
func Read(dir string) (*Folder, error) {
	f := &Folder{dir: dir}
	if err := f.checkFiles(); err != nil {
		return nil, err
	}
	data, err := hostpath.ReadFile(f.path(aboutFile), maxAbout)
	if err != nil {
		e := pathError("read run", dir, err)
		e.Hint = "name a folder that a run was written to"
		return nil, e
	}
	if err := cmp.Or(checkJSON(data), json.Unmarshal(data, &f.about)); err != nil {
		return nil, wrong("read run", f.path(aboutFile), err)
	}
	if f.about.Attempts < 0 || f.about.Attempts > maxAttempts {
		return nil, wrong("read run", f.path(aboutFile), fmt.Errorf("invalid number of attempts: %d is not from 0 to %d", f.about.Attempts, maxAttempts))
	}
	if !isLine(f.about.Task) {
		return nil, wrong("read run", f.path(aboutFile), fmt.Errorf("invalid task name %q", f.about.Task))
	}
	return f, nil
}

func (f *Folder) path(name string) string { return filepath.Join(f.dir, name) }

// Dir returns the folder's path as given by the caller.
func (f *Folder) Dir() string { return f.dir }

// About describes the run.
func (f *Folder) About() About { return f.about }

// Task returns the resolved task that was passed to Create.
func (f *Folder) Task() ([]byte, error) {
	data, err := hostpath.ReadFile(f.path(taskFile), maxTask)
	if err != nil {
		return nil, pathError("read run", f.dir, err)
	}
	return data, nil
}

// Results yields the recorded results in order. An incomplete last line, which is still being written or was
// interrupted, is omitted.
func (f *Folder) Results() iter.Seq2[task.SampleResult, error] {
	return func(yield func(task.SampleResult, error) bool) {
		for l, err := range f.lines(f.size()) {
			if !yield(l.result, err) || err != nil {
				return
			}
		}
	}
}

// size returns the size of the results in bytes; 0 if they cannot be read, which lines then reports.
func (f *Folder) size() int64 {
	if info, err := os.Stat(f.path(resultsFile)); err == nil {
		return info.Size()
	}
	return 0
}

// line is one result.
type line struct {
	raw    []byte // with its newline
	result task.SampleResult
}

// lines yields the complete lines in the first bytes of the results. A last line whose write was interrupted is
// omitted: it has no newline or, if the system extended the file before writing its content, it has NUL bytes. Any
// other invalid line is an error.
func (f *Folder) lines(within int64) iter.Seq2[line, error] {
	const op = "read results"
	return func(yield func(line, error) bool) {
		file, err := archive.OpenRegular(f.path(resultsFile))
		if err != nil {
			yield(line{}, pathError(op, f.dir, err))
			return
		}
		defer file.Close()
		in := bufio.NewReaderSize(io.LimitReader(file, within), 1<<16)
		seen := map[task.Key]bool{}
		unwritten := false // the previous line has NUL bytes
		for n := 1; ; n++ {
			raw, err := readLine(in)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(line{}, pathError(op, f.path(resultsFile), err))
				return
			}
			if unwritten {
				yield(line{}, wrong(op, f.path(resultsFile), fmt.Errorf("line %d: it has NUL bytes", n-1)))
				return
			}
			if unwritten = bytes.IndexByte(raw, 0) >= 0; unwritten {
				continue
			}
			l, err := parse(raw)
			if err == nil {
				err = f.counts(l.result.Key(), n, seen)
			}
			if err != nil {
				yield(line{}, wrong(op, f.path(resultsFile), fmt.Errorf("line %d: %w", n, err)))
				return
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// counts rejects the n-th result if the attempt already has a result, or if n exceeds the run's attempts.
func (f *Folder) counts(key task.Key, n int, seen map[task.Key]bool) error {
	switch {
	case seen[key]:
		return fmt.Errorf("duplicate result for sample %q, epoch %d", key.Sample, key.Epoch)
	case n > f.about.Attempts:
		return fmt.Errorf("more results than the run's %d attempts", f.about.Attempts)
	}
	seen[key] = true
	return nil
}

// parse decodes one line.
func parse(raw []byte) (line, error) {
	l := line{raw: raw}
	if err := checkJSON(raw); err != nil {
		return l, err
	}
	if err := json.Unmarshal(raw, &l.result); err != nil {
		return l, err
	}
	return l, checkRecorded(&l.result)
}

// pathError returns an error for a failed operation on path.
func pathError(op, path string, err error) *fumehood.Error {
	class := fumehood.ErrInfrastructure
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) {
		class = fumehood.ErrConfig
	}
	return &fumehood.Error{Op: op, Path: path, Class: class, Err: err}
}

// wrong returns an ErrConfig for invalid content of path.
func wrong(op, path string, err error) *fumehood.Error {
	return &fumehood.Error{Op: op, Path: path, Class: fumehood.ErrConfig, Err: err}
}

// writeFile writes a small file atomically.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // if it was not renamed
	_, err = io.Copy(f, bytes.NewReader(data))
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return replace(f.Name(), path)
}

// replace renames file to by, and syncs the folder.
func replace(file, by string) error {
	if err := os.Rename(file, by); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(by))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && runtime.GOOS != "windows" { // Windows cannot sync folders
		return err
	}
	return nil
}
