package runs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/task"
)

// Run is a run that is being written, by this process alone. Its methods may be called by many goroutines at once.
// Close it.
type Run struct {
	*Folder
	lock *flock.Flock

	mu      sync.Mutex
	results file
	size    int64 // bytes of results
	done    map[task.Key]bool
	broken  error // why nothing can be appended any more
}

// file is what of a file is needed to append to it.
type file interface {
	io.WriteCloser
	Sync() error
	Truncate(size int64) error
}

// Create makes the folder of a new run. The folder may be there, if nothing is in it. resolved is the task with all that
// it refers to, as it is to be found again by Task.
func Create(dir string, about About, resolved []byte) (_ *Run, err error) {
	const op = "create run"
	if about.Created.IsZero() {
		about.Created = time.Now()
	}
	about.Created = about.Created.UTC().Round(0)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, failed(op, dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, failed(op, dir, err)
	}
	if len(entries) > 0 {
		return nil, &fumehood.Error{
			Op: op, Path: dir, Class: fumehood.ErrConfig, Err: errors.New("the folder is not empty"),
			Hint: "name another folder, or go on with the run that is there",
		}
	}
	text, err := json.MarshalIndent(about, "", "  ")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, journalsName), 0o700)
	}
	for name, data := range map[string][]byte{taskFile: resolved, resultsFile: nil} {
		if err == nil {
			err = write(filepath.Join(dir, name), data)
		}
	}
	if err == nil {
		err = write(filepath.Join(dir, aboutFile), append(text, '\n')) // at last: it makes the folder a run's
	}
	if err != nil {
		return nil, failed(op, dir, err)
	}
	return Open(dir)
}

// Open goes on with a run: after its end, or where its process has died. What the end of that process left of a line is
// dropped, and so are cancelled attempts, which are to be made again. A run that is being written by another process is
// an ErrUnavailable.
func Open(dir string) (_ *Run, err error) {
	const op = "open run"
	f, err := Read(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{Folder: f, lock: flock.New(f.path(lockFile)), done: map[task.Key]bool{}}
	locked, err := r.lock.TryLock()
	if err != nil {
		return nil, failed(op, dir, err)
	}
	if !locked {
		return nil, &fumehood.Error{
			Op: op, Path: dir, Class: fumehood.ErrUnavailable, Err: errors.New("another process is writing the run"),
			Hint: "wait for its end, or end it",
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
		return nil, failed(op, dir, err)
	}
	if err := os.Remove(f.path(summaryFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, failed(op, dir, err)
	}
	if err := r.repair(); err != nil {
		return nil, err
	}
	results, err := os.OpenFile(f.path(resultsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, failed(op, dir, err)
	}
	r.results = results
	return r, nil
}

// repair drops what is not to stay, and notes what is done.
func (r *Run) repair() error {
	const op = "repair results"
	kept, err := os.CreateTemp(r.dir, ".new-*")
	if err != nil {
		return failed(op, r.dir, err)
	}
	defer os.Remove(kept.Name()) // where it has not taken its place
	defer kept.Close()
	was := r.Folder.size()
	for l, err := range r.lines(was) {
		if err != nil {
			return err
		}
		key := l.result.Key()
		if e := l.result.Error; e != nil && e.Class == task.Cancelled {
			continue
		}
		r.done[key] = true
		n, err := kept.Write(l.raw)
		if err != nil {
			return failed(op, r.dir, err)
		}
		r.size += int64(n)
	}
	if r.size == was {
		return nil
	}
	err = errors.Join(kept.Chmod(0o600), kept.Sync(), kept.Close())
	if err == nil {
		err = replace(kept.Name(), r.path(resultsFile))
	}
	if err != nil {
		return failed(op, r.dir, err)
	}
	return nil
}

// Done returns what tells whether an attempt was recorded: see task.RunOptions. It is about now, and what is appended
// later.
func (r *Run) Done() func(task.Key) bool {
	return func(k task.Key) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.done[k]
	}
}

// Append records a result. When it returns without an error, the result is on the disk. One of an attempt that is
// recorded is refused, and so are one more than the run has attempts, and one of over 64 MiB.
func (r *Run) Append(res task.SampleResult) error {
	op := fmt.Sprintf("record sample %q, epoch %d", res.Sample, res.Epoch)
	text, err := json.Marshal(res)
	if err = cmp.Or(err, check(&res)); err != nil {
		return wrong(op, r.dir, err)
	}
	if len(text) >= maxLine {
		return wrong(op, r.dir, fmt.Errorf("it takes %d bytes, and a line of results has at most %d", len(text)+1, maxLine))
	}
	text = append(text, '\n')
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.broken != nil:
		return &fumehood.Error{Op: op, Path: r.dir, Class: fumehood.ErrUnavailable, Err: r.broken}
	case r.done[res.Key()]:
		return wrong(op, r.dir, errors.New("it is recorded already"))
	case len(r.done) >= r.about.Attempts:
		return wrong(op, r.dir, fmt.Errorf("the run is of %d attempts, and all are recorded", r.about.Attempts))
	}
	_, err = r.results.Write(text)
	if err == nil {
		err = r.results.Sync()
	}
	if err != nil {
		// What was written of the line must not be the beginning of the next one.
		if trouble := r.results.Truncate(r.size); trouble != nil {
			r.broken = fmt.Errorf("a line could not be written: %w; nor removed: %w", err, trouble)
		}
		return failed(op, r.dir, err)
	}
	r.size += int64(len(text))
	r.done[res.Key()] = true
	return nil
}

// Journal opens the journal of a sandbox: see task.Options.
func (r *Run) Journal(sandbox string, _ task.Key) (io.WriteCloser, error) {
	f, err := os.OpenFile(filepath.Join(r.path(journalsName), sandbox+".jsonl"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, failed("open the journal of "+sandbox, r.dir, err)
	}
	return f, nil
}

// Finish writes the summary of what is recorded. It may be called again.
func (r *Run) Finish() (Summary, error) {
	s, err := r.Summary()
	if err != nil {
		return s, err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = write(r.path(summaryFile), append(text, '\n'))
	}
	if err != nil {
		return s, failed("write the summary", r.dir, err)
	}
	return s, nil
}

// Discard closes a run and removes its folder: one in which nothing came to be, so that there is nothing to go on with.
func (r *Run) Discard() error {
	err := r.Close()
	if trouble := os.RemoveAll(r.dir); trouble != nil {
		err = errors.Join(err, failed("discard run", r.dir, trouble))
	}
	return err
}

// Close lets others go on with the run. It may be called again.
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
		return failed("close run", r.dir, err)
	}
	return nil
}
