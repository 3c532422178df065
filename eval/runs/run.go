package runs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/owner"
)

// Run is a run that this process is writing, exclusively. Its methods may be called by multiple goroutines
// concurrently. It must be closed.
type Run struct {
	*Folder
	lock *flock.Flock

	mu      sync.Mutex
	results file
	size    int64 // size of the results in bytes
	done    map[task.Key]bool
	broken  error // why nothing can be appended any more
}

// file has the methods of os.File that are needed for appending.
type file interface {
	io.WriteCloser
	Sync() error
	Truncate(size int64) error
}

// Create creates the folder of a new run. The folder may exist if it is empty, or has only the folder
// SourceOf. resolved is the task with everything
// that it refers to; Task returns it.
func Create(dir string, about About, resolved []byte) (_ *Run, err error) {
	const op = "create run"
	if about.Created.IsZero() {
		about.Created = time.Now()
	}
	about.Created = about.Created.UTC().Round(0)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, pathError(op, dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, pathError(op, dir, err)
	}
	if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != sourceName }) {
		return nil, &fumehood.Error{
			Op: op, Path: dir, Class: fumehood.ErrConfig, Err: errors.New("the folder is not empty"),
			Hint: "use another folder, or resume the existing run",
		}
	}
	text, err := json.MarshalIndent(about, "", "  ")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, journalsName), 0o700)
	}
	for name, data := range map[string][]byte{taskFile: resolved, resultsFile: nil} {
		if err == nil {
			err = writeFile(filepath.Join(dir, name), data)
		}
	}
	if err == nil {
		err = writeFile(filepath.Join(dir, aboutFile), append(text, '\n')) // last, because it marks the folder as a run
	}
	if err != nil {
		return nil, pathError(op, dir, err)
	}
	return Open(dir)
}

// Open resumes a run, after its end or after its process died. It drops a partial last line, and canceled attempts,
// which must be repeated. Drop drops others. A run that another process is writing is an ErrUnavailable.
func Open(dir string) (_ *Run, err error) {
	const op = "open run"
	f, err := Read(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{Folder: f, lock: flock.New(f.path(lockFile))}
	locked, err := r.lock.TryLock()
	if err != nil {
		return nil, pathError(op, dir, err)
	}
	if !locked {
		return nil, &fumehood.Error{
			Op: op, Path: dir, Class: fumehood.ErrUnavailable, Err: errors.New("another process is writing the run"),
			Hint: "wait until it ends, or stop it",
		}
	}
	defer func() {
		if err != nil {
			_ = r.Close() // nothing was written
		}
	}()
	self, err := owner.Self()
	if err == nil {
		err = os.WriteFile(f.path(ownerFile), []byte(self.String()), 0o600)
	}
	if err != nil {
		return nil, pathError(op, dir, err)
	}
	if err := os.Remove(f.path(summaryFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, pathError(op, dir, err)
	}
	if _, err := r.rewrite(canceled); err != nil {
		return nil, err
	}
	return r, nil
}

func canceled(res *task.SampleResult) bool {
	return res.Error != nil && res.Error.Class == task.Canceled
}

// Drop removes the results that match, so that their attempts are made again. It returns how many it has removed.
// After an error nothing can be appended.
func (r *Run) Drop(match func(*task.SampleResult) bool) (dropped int, err error) {
	const op = "drop results"
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return 0, &fumehood.Error{Op: op, Path: r.dir, Class: fumehood.ErrUnavailable, Err: r.broken}
	}
	err = r.results.Close() // Windows replaces no open file
	r.results = nil
	if err != nil {
		err = pathError(op, r.dir, err)
	} else {
		dropped, err = r.rewrite(match)
	}
	r.broken = err
	return dropped, err
}

// rewrite drops results and partial lines, records which attempts are done, and opens the results for appending.
func (r *Run) rewrite(drop func(*task.SampleResult) bool) (dropped int, err error) {
	if dropped, err = r.repair(drop); err != nil {
		return 0, err
	}
	results, err := os.OpenFile(r.path(resultsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, pathError("open run", r.dir, err)
	}
	r.results = results
	return dropped, nil
}

// repair drops results and partial lines, and records which attempts are done.
func (r *Run) repair(drop func(*task.SampleResult) bool) (dropped int, err error) {
	const op = "repair results"
	kept, err := os.CreateTemp(r.dir, ".new-*")
	if err != nil {
		return 0, pathError(op, r.dir, err)
	}
	defer os.Remove(kept.Name()) // if it was not renamed
	defer kept.Close()
	was, size := r.Folder.size(), int64(0)
	done := map[task.Key]bool{}
	for l, err := range r.lines(was) {
		if err != nil {
			return 0, err
		}
		if drop(&l.result) {
			dropped++
			continue
		}
		done[l.result.Key()] = true
		n, err := kept.Write(l.raw)
		if err != nil {
			return 0, pathError(op, r.dir, err)
		}
		size += int64(n)
	}
	if size == was {
		r.done, r.size = done, size
		return dropped, nil
	}
	err = errors.Join(kept.Chmod(0o600), kept.Sync(), kept.Close())
	if err == nil {
		err = replace(kept.Name(), r.path(resultsFile))
	}
	if err != nil {
		return 0, pathError(op, r.dir, err)
	}
	r.done, r.size = done, size
	return dropped, nil
}

// Done returns a function that reports whether an attempt is recorded, for task.RunOptions. It takes later calls of
// Append into account.
func (r *Run) Done() func(task.Key) bool {
	return func(k task.Key) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.done[k]
	}
}

// Append records a result. If it returns nil, the result is on disk. It rejects a second result of an attempt, more
// results than the run has attempts, and a result of over 64 MiB.
func (r *Run) Append(res task.SampleResult) error {
	op := fmt.Sprintf("record sample %q, epoch %d", res.Sample, res.Epoch)
	text, err := json.Marshal(res)
	if err = cmp.Or(err, checkRecorded(&res)); err != nil {
		return wrong(op, r.dir, err)
	}
	if len(text) >= maxLine {
		return wrong(op, r.dir, fmt.Errorf("the result takes %d bytes, more than the limit of %d per line", len(text)+1, maxLine))
	}
	if err := checkJSON(text); err != nil {
		return wrong(op, r.dir, fmt.Errorf("the result has %w", err))
	}
	text = append(text, '\n')
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.broken != nil:
		return &fumehood.Error{Op: op, Path: r.dir, Class: fumehood.ErrUnavailable, Err: r.broken}
	case r.done[res.Key()]:
		return wrong(op, r.dir, errors.New("the attempt is already recorded"))
	case len(r.done) >= r.about.Attempts:
		return wrong(op, r.dir, fmt.Errorf("all %d attempts of the run are already recorded", r.about.Attempts))
	}
	_, err = r.results.Write(text)
	if err == nil {
		err = r.results.Sync()
	}
	if err != nil {
		// A partial line must not become the beginning of the next one.
		if trouble := r.results.Truncate(r.size); trouble != nil {
			r.broken = fmt.Errorf("a line could not be written: %w; nor removed: %w", err, trouble)
		}
		return pathError(op, r.dir, err)
	}
	r.size += int64(len(text))
	r.done[res.Key()] = true
	return nil
}

// Journal opens the journal of a sandbox, for task.Options.
func (r *Run) Journal(sandbox string) (io.WriteCloser, error) {
	f, err := os.OpenFile(filepath.Join(r.path(journalsName), sandbox+".jsonl"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, pathError("open the journal of "+sandbox, r.dir, err)
	}
	return f, nil
}

// Finish writes the summary of the recorded results. It may be called again.
func (r *Run) Finish() (Summary, error) {
	s, err := r.Summary()
	if err != nil {
		return s, err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = writeFile(r.path(summaryFile), append(text, '\n'))
	}
	if err != nil {
		return s, pathError("write the summary", r.dir, err)
	}
	return s, nil
}

// Discard closes a run and removes its folder. It is for a run without results: there is nothing to resume.
func (r *Run) Discard() error {
	err := r.Close()
	if trouble := os.RemoveAll(r.dir); trouble != nil {
		err = errors.Join(err, pathError("discard run", r.dir, trouble))
	}
	return err
}

// Close closes the run, so that another process can resume it. It may be called again.
func (r *Run) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if r.results != nil {
		err = r.results.Close()
		r.results = nil
	}
	r.broken = cmp.Or(r.broken, errors.New("the run is closed"))
	if r.lock.Locked() {
		if trouble := os.Remove(r.path(ownerFile)); !errors.Is(trouble, os.ErrNotExist) {
			err = errors.Join(err, trouble)
		}
	}
	if err = errors.Join(err, r.lock.Close()); err != nil {
		return pathError("close run", r.dir, err)
	}
	return nil
}
