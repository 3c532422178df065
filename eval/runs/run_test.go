package runs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func create(t *testing.T) *Run {
	t.Helper()
	r, err := Create(filepath.Join(t.TempDir(), "run"), About{Task: "sums", Attempts: 10_000, Created: created}, []byte("name: sums\n"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func reopen(t *testing.T, r *Run) *Run {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(r.Dir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	})
	return again
}

func scored(sample string, epoch int, value float64) task.SampleResult {
	return task.SampleResult{Sample: sample, Epoch: epoch, Tries: 1, Score: &task.Score{Value: value}, Started: created}
}

func failedWith(sample, class string) task.SampleResult {
	return task.SampleResult{Sample: sample, Epoch: 1, Tries: 3, Error: &task.Failure{Class: class, Phase: "solve", Text: "why"}, Started: created}
}

func appendAll(t *testing.T, r *Run, all ...task.SampleResult) {
	t.Helper()
	for _, res := range all {
		if err := r.Append(res); err != nil {
			t.Fatal(err)
		}
	}
}

func recorded(t *testing.T, f *Folder) []string {
	t.Helper()
	var all []string
	for r, err := range f.Results() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s/%d", r.Sample, r.Epoch))
	}
	return all
}

func TestRun_roundTrip(t *testing.T) {
	r := create(t)
	full := scored("a", 2, 0.5)
	full.Score.Parts, full.Score.Reasons = map[string]float64{"style": 1}, []string{"too slow"}
	full.Steps = []task.StepResult{{Name: "1", Result: fumehood.Result{Outcome: fumehood.TimedOut, ExitCode: -1, Duration: 1500 * time.Millisecond, Stdout: outputOf("\x00\u2028<&>\n")}}}
	full.Phases = map[string]float64{"solve": 1.5}
	appendAll(t, r, full, scored("a", 1, 1))
	if done := r.Done(); !done(task.Key{Sample: "a", Epoch: 1}) || !done(full.Key()) || done(task.Key{Sample: "b", Epoch: 1}) {
		t.Error("Done does not report the recorded attempts")
	}
	again := reopen(t, r)
	if done := again.Done(); !done(task.Key{Sample: "a", Epoch: 1}) || !done(full.Key()) || done(task.Key{Sample: "a", Epoch: 3}) {
		t.Error("Done does not report the recorded attempts after Open")
	}
	for got, err := range again.Results() {
		want, _ := json.Marshal(full)
		if text, _ := json.Marshal(got); err != nil || !bytes.Equal(text, want) {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
		break
	}
	if text, err := again.Task(); err != nil || string(text) != "name: sums\n" || !reflect.DeepEqual(again.About(), r.About()) {
		t.Errorf("%q, %v, %+v", text, err, again.About())
	}
}

// Results and tasks contain output of commands and values of variables, so other users must not be able to read
// them.
func TestCreate_permissions(t *testing.T) {
	r := create(t)
	if err := r.Append(scored("a", 1, 1)); err != nil {
		t.Fatal(err)
	}
	r = reopen(t, r)
	if _, err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(r.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAppend_twice(t *testing.T) {
	r := create(t)
	appendAll(t, r, scored("a", 1, 1))
	for _, run := range []*Run{r, reopen(t, r)} {
		if err := run.Append(scored("a", 1, 0)); !errors.Is(err, fumehood.ErrConfig) && !errors.Is(err, fumehood.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	if got := recorded(t, r.Folder); !slices.Equal(got, []string{"a/1"}) {
		t.Errorf("got %q", got)
	}
}

func TestAppend_invalid(t *testing.T) {
	r := create(t)
	both := scored("a", 1, 1)
	both.Error = &task.Failure{Class: task.Infra}
	for name, res := range map[string]task.SampleResult{
		"neither": {Sample: "a", Epoch: 1}, "both": both, "no sample": scored("", 1, 1), "no epoch": scored("a", 0, 1), "no number": scored("a", 1, math.NaN()),
	} {
		if err := r.Append(res); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	appendAll(t, r, scored("a", 1, 1))
	if got := recorded(t, r.Folder); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

func TestOpen_partialLine(t *testing.T) {
	r := create(t)
	appendAll(t, r, scored("a", 1, 1), scored("b", 1, 0))
	file := filepath.Join(r.Dir(), resultsFile)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	ends := [][]byte{append(slices.Clone(whole[:first]), "\x00\x00\x00\n"...)} // extended by the system, without content
	for cut := first; cut < len(whole); cut++ {
		ends = append(ends, whole[:cut])
	}
	for _, content := range ends {
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := recorded(t, r.Folder); !slices.Equal(got, []string{"a/1"}) { // a reader ignores it
			t.Fatalf("%d bytes: %q", len(content), got)
		}
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, content) {
			t.Fatalf("reading changed the file: %v", err)
		}
		if r, err = Open(r.Dir()); err != nil {
			t.Fatalf("%d bytes: %v", len(content), err)
		}
		if r.Done()(task.Key{Sample: "b", Epoch: 1}) {
			t.Fatalf("%d bytes: a partial result counts as done", len(content))
		}
		appendAll(t, r, scored("b", 1, 0))
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, whole) {
			t.Fatalf("%d bytes: %q, %v", len(content), now, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpen_brokenLine(t *testing.T) {
	for name, broken := range map[string]string{
		"no JSON": "{\n", "no result": "{}\n", "another type": `{"sample": 3}` + "\n",
		"NUL bytes": "\x00\x00\n", "a key twice": strings.Replace(string(lineOf("c")), `"score"`, `"Score":null,"score"`, 1),
	} {
		r := create(t)
		appendAll(t, r, scored("a", 1, 1))
		file := filepath.Join(r.Dir(), resultsFile)
		good, _ := os.ReadFile(file)
		content := string(good) + broken
		if name != "no result" { // the broken line is the last line then
			content += strings.Replace(string(good), `"a"`, `"b"`, 1)
		}
		if err := errors.Join(r.Close(), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
		_, err := Open(r.Dir())
		_, summing := r.Summary()
		for _, err := range []error{err, summing, r.Export(&bytes.Buffer{}, CSV)} {
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "results.jsonl: line 2: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if now, _ := os.ReadFile(file); string(now) != content {
			t.Errorf("%s: the file changed", name)
		}
	}
}

func TestAppend_tooMany(t *testing.T) {
	r, err := Create(filepath.Join(t.TempDir(), "run"), About{Task: "sums", Attempts: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, r, scored("a", 1, 1))
	if err := r.Append(scored("b", 1, 1)); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "all 1 attempts of the run") {
		t.Errorf("got %v", err)
	}
	if _, err := r.Finish(); err != nil {
		t.Error(err)
	}
	file := filepath.Join(r.Dir(), resultsFile)
	good, _ := os.ReadFile(file)
	if err := errors.Join(r.Close(), os.WriteFile(file, append(good, lineOf("b")...), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Summary(); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "line 2: more results than the run's 1 attempts") {
		t.Errorf("got %v", err)
	}
}

func TestAppend_size(t *testing.T) {
	r := create(t)
	reasons := scored("a", 1, 1)
	reasons.Score.Reasons = make([]string, maxValues)
	if err := r.Append(reasons); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "more than 1000000 values") {
		t.Errorf("got %v", err)
	}
	res := scored("a", 1, 1)
	res.Steps = []task.StepResult{{Name: "1", Result: fumehood.Result{Outcome: fumehood.Exited, Stdout: outputOf(strings.Repeat("x", maxLine))}}}
	if err := r.Append(res); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "more than the limit of") {
		t.Errorf("got %v", err)
	}
	if s, err := r.Finish(); err != nil || s.Recorded != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestResults_partsCase(t *testing.T) {
	r := create(t)
	res := scored("a", 1, 1)
	res.Score.Parts = map[string]float64{"A": 1, "a": 0}
	appendAll(t, r, res)
	if s, err := r.Finish(); err != nil || len(s.Parts) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	twice := strings.Replace(string(lineOf("b")), `"value"`, `"parts":{"a":0,"a":1},"value"`, 1)
	file := filepath.Join(r.Dir(), resultsFile)
	if err := errors.Join(r.Close(), os.WriteFile(file, []byte(twice), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Summary(); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), `duplicate key "a"`) {
		t.Errorf("got %v", err)
	}
}

// lineOf returns a line of results.
func lineOf(sample string) []byte {
	line, _ := json.Marshal(scored(sample, 1, 1))
	return append(line, '\n')
}

func TestOpen_duplicate(t *testing.T) {
	r := create(t)
	appendAll(t, r, scored("a", 1, 1))
	file := filepath.Join(r.Dir(), resultsFile)
	line, _ := os.ReadFile(file)
	if err := errors.Join(r.Close(), os.WriteFile(file, append(line, line...), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(r.Dir()); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), `duplicate result for sample "a", epoch 1`) {
		t.Errorf("got %v", err)
	}
}

func TestOpen_canceled(t *testing.T) {
	r := create(t)
	appendAll(t, r, scored("a", 1, 1), failedWith("b", task.Canceled), failedWith("c", task.Infra), failedWith("d", task.Canceled))
	if got := recorded(t, r.Folder); len(got) != 4 {
		t.Errorf("got %q", got)
	}
	again := reopen(t, r)
	if got := recorded(t, again.Folder); !slices.Equal(got, []string{"a/1", "c/1"}) {
		t.Errorf("got %q", got)
	}
	appendAll(t, again, scored("d", 1, 1), scored("b", 1, 1))
	if got := recorded(t, again.Folder); !slices.Equal(got, []string{"a/1", "c/1", "d/1", "b/1"}) {
		t.Errorf("got %q", got)
	}
}

func TestOpen_locked(t *testing.T) {
	r := create(t)
	if _, err := Open(r.Dir()); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	appendAll(t, r, scored("a", 1, 1))
	again := reopen(t, r)
	if err := r.Append(scored("b", 1, 1)); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("Append after Close: %v", err)
	}
	if err := r.Close(); err != nil { // must not release the other Run's lock
		t.Error(err)
	}
	if _, err := Open(r.Dir()); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	appendAll(t, again, scored("b", 1, 1))
}

func TestOpen_notARun(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := Open(path); !errors.Is(err, fumehood.ErrConfig) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, About{}, nil); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, aboutFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("got %v", err)
	}
}

// full is a disk with limited space.
type full struct {
	file
	room  int
	stuck bool // truncating fails too
}

func (f *full) Write(p []byte) (int, error) {
	n, err := f.file.Write(p[:min(f.room, len(p))])
	if err == nil && n < len(p) {
		err = errors.New("no space left on device")
	}
	return n, err
}

func (f *full) Truncate(size int64) error {
	if f.stuck {
		return errors.New("read-only file system")
	}
	return f.file.Truncate(size)
}

func TestAppend_diskFull(t *testing.T) {
	r := create(t)
	appendAll(t, r, scored("a", 1, 1))
	disk := &full{file: r.results, room: 20}
	r.results = disk
	if err := r.Append(scored("b", 1, 1)); !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v", err)
	}
	disk.room = 1 << 20
	appendAll(t, r, scored("b", 1, 1), scored("c", 1, 1))
	if got := recorded(t, r.Folder); !slices.Equal(got, []string{"a/1", "b/1", "c/1"}) {
		t.Errorf("got %q", got)
	}
	disk.room, disk.stuck = 20, true
	if err := r.Append(scored("d", 1, 1)); err == nil {
		t.Error("no error")
	}
	disk.room = 1 << 20
	if err := r.Append(scored("d", 1, 1)); !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "no space") || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Append after a partial line: %v", err)
	}
}

func TestAppend_concurrent(t *testing.T) {
	r := create(t)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 25 {
				if err := r.Append(scored(fmt.Sprint(w), i+1, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		writers.Wait()
		close(ended)
	}()
	for reading := true; reading; {
		select {
		case <-ended:
			reading = false
		default:
		}
		if s, err := r.Summary(); err != nil || s.Passed != s.Recorded {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if got := recorded(t, r.Folder); len(got) != 200 {
		t.Errorf("%d results", len(got))
	}
}

func TestRun_Journal(t *testing.T) {
	r := create(t)
	w, err := r.Journal("fumehood-sums-abc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("{}\n")); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(r.Dir(), "journals", "fumehood-sums-abc.jsonl")); err != nil || string(text) != "{}\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := r.Journal("fumehood-sums-abc"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a journal was overwritten: %v", err)
	}
}

// unsynced is a file without Sync.
type unsynced struct{ file }

func (unsynced) Sync() error { return nil }

func TestRun_Discard(t *testing.T) {
	r := create(t)
	if err := r.Discard(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := r.Append(task.SampleResult{Sample: "1", Epoch: 1, Score: &task.Score{}}); err == nil {
		t.Error("a discarded run can be written")
	}
}

func TestRun_memory(t *testing.T) {
	const results, most = 10_000, 8 << 20
	r := create(t)
	r.results = unsynced{r.results} // ten thousand syncs would make the test slow
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	output := strings.Repeat("0123456789abcdef", 1<<6)
	for i := range results {
		res := scored(fmt.Sprint(i), 1, float64(i%2))
		res.Steps = []task.StepResult{{Name: "1", Result: fumehood.Result{Outcome: fumehood.Exited, Stdout: outputOf(output + fmt.Sprint(i))}}}
		res.Phases = map[string]float64{"acquire": 1, "setup": 1, "solve": 1, "score": 1, "remove": 1}
		appendAll(t, r, res)
	}
	appended := heap() - before
	s, err := r.Finish()
	if err != nil || s.Recorded != results || s.Passed != results/2 {
		t.Errorf("%+v, %v", s, err)
	}
	finished := heap() - before
	t.Logf("%d bytes after %d results of 1 KiB, %d after the summary", appended, results, finished)
	if max(appended, finished) > most {
		t.Errorf("used more than %d bytes", most)
	}
	if got := r.size; got < results<<10 {
		t.Errorf("only %d bytes were written", got)
	}
}
