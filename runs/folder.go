// Package runs keeps what became of a task's attempts in a folder, from where a run goes on that has died.
//
//	r, err := runs.Create(dir, about, resolved) // or runs.Open(dir), to go on
//	defer r.Close()
//	options.Journal, how.Done = r.Journal, r.Done()
//	for res, err := range task.Run(ctx, options, how) {
//		err = r.Append(res)
//	}
//	summary, err := r.Finish()
//
// docs/runs.md describes the files. Every error is a *fumehood.Error: ErrConfig for a folder that is no run's or a broken
// file, ErrUnavailable for a run that another process is writing, else ErrInfrastructure.
package runs

import (
	"bufio"
	"bytes"
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
	"github.com/fumehood/fumehood/internal/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/task"
)

// The files of a run's folder.
const (
	aboutFile    = "run.json"
	taskFile     = "task.yaml"
	resultsFile  = "results.jsonl"
	summaryFile  = "summary.json"
	lockFile     = "lock"  // held by who writes the run
	ownerFile    = "owner" // says who that is
	journalsName = "journals"
)

// About says what a run is.
type About struct {
	Task     string    `json:"task"`     // its name
	Attempts int       `json:"attempts"` // that are to be made, in all epochs
	Created  time.Time `json:"created"`  // zero means now
}

// Folder is a run's folder, to be read, also while the run goes on. It holds nothing open.
type Folder struct {
	dir   string
	about About
}

// Read finds a run's folder.
func Read(dir string) (*Folder, error) {
	f := &Folder{dir: dir}
	if err := f.checkFiles(); err != nil {
		return nil, err
	}
	data, err := hostpath.ReadFile(f.path(aboutFile), maxAbout)
	if err != nil {
		e := failed("read run", dir, err)
		e.Hint = "name a folder that a run was written to"
		return nil, e
	}
	if err := json.Unmarshal(data, &f.about); err != nil {
		return nil, wrong("read run", f.path(aboutFile), err)
	}
	if err := keysOnce(json.NewDecoder(bytes.NewReader(data)), false); err != nil {
		return nil, wrong("read run", f.path(aboutFile), err)
	}
	if f.about.Attempts < 0 || f.about.Attempts > maxAttempts {
		return nil, wrong("read run", f.path(aboutFile), fmt.Errorf("%d attempts are not from 0 to %d", f.about.Attempts, maxAttempts))
	}
	if !isLine(f.about.Task) {
		return nil, wrong("read run", f.path(aboutFile), fmt.Errorf("%q is no task's name", f.about.Task))
	}
	return f, nil
}

func (f *Folder) path(name string) string { return filepath.Join(f.dir, name) }

// Dir is where the folder is, as it was named.
func (f *Folder) Dir() string { return f.dir }

// About says what the run is.
func (f *Folder) About() About { return f.about }

// Task is the task as it was resolved, as Create was given it.
func (f *Folder) Task() ([]byte, error) {
	data, err := hostpath.ReadFile(f.path(taskFile), maxTask)
	if err != nil {
		return nil, failed("read run", f.dir, err)
	}
	return data, nil
}

// Results yields what is recorded, in the order in which it was. A last line that is not whole, because it is being
// written or never was to its end, is left out.
func (f *Folder) Results() iter.Seq2[task.SampleResult, error] {
	return func(yield func(task.SampleResult, error) bool) {
		for l, err := range f.lines(f.size()) {
			if !yield(l.result, err) || err != nil {
				return
			}
		}
	}
}

// size is how many bytes of results there are; 0 where they cannot be read, of which lines tells.
func (f *Folder) size() int64 {
	if info, err := os.Stat(f.path(resultsFile)); err == nil {
		return info.Size()
	}
	return 0
}

// line is one result.
type line struct {
	raw    []byte // with its end
	result task.SampleResult
}

// lines yields the whole lines within the first bytes of the results. A last one that was never written to its end is left out:
// it has no newline, or, where the system gave the file its length before its content, NUL bytes. Else a line that no run has
// recorded is an error.
func (f *Folder) lines(within int64) iter.Seq2[line, error] {
	const op = "read results"
	return func(yield func(line, error) bool) {
		file, err := archive.OpenRegular(f.path(resultsFile))
		if err != nil {
			yield(line{}, failed(op, f.dir, err))
			return
		}
		defer file.Close()
		in := bufio.NewReaderSize(io.LimitReader(file, within), 1<<16)
		seen := map[task.Key]bool{}
		unwritten := false // the line before was
		for n := 1; ; n++ {
			raw, err := readLine(in)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(line{}, failed(op, f.path(resultsFile), err))
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

// counts refuses the n-th result where another one of the attempt was seen, or the run has no more attempts.
func (f *Folder) counts(key task.Key, n int, seen map[task.Key]bool) error {
	switch {
	case seen[key]:
		return fmt.Errorf("sample %q, epoch %d is there twice", key.Sample, key.Epoch)
	case n > f.about.Attempts:
		return fmt.Errorf("the run is of %d attempts, and there are more results", f.about.Attempts)
	}
	seen[key] = true
	return nil
}

// parse reads one line.
func parse(raw []byte) (line, error) {
	l := line{raw: raw}
	if err := json.Unmarshal(raw, &l.result); err != nil {
		return l, err
	}
	if err := keysOnce(json.NewDecoder(bytes.NewReader(raw)), false); err != nil {
		return l, err
	}
	return l, check(&l.result)
}

// failed says what could not be done with what.
func failed(op, path string, err error) *fumehood.Error {
	class := fumehood.ErrInfrastructure
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) {
		class = fumehood.ErrConfig
	}
	return &fumehood.Error{Op: op, Path: path, Class: class, Err: err}
}

// wrong says what is wrong with what.
func wrong(op, path string, err error) *fumehood.Error {
	return &fumehood.Error{Op: op, Path: path, Class: fumehood.ErrConfig, Err: err}
}

// write writes a small file as a whole, or not at all.
func write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // where it has not taken its place
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

// replace puts a file in the place of another one, for good.
func replace(file, by string) error {
	if err := os.Rename(file, by); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(by))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil && runtime.GOOS != "windows" { // which has no such thing
		return err
	}
	return nil
}
