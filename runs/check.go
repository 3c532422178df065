package runs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/task"
)

// A run's folder may come from another person, so its contents are validated before use.

const (
	maxAbout = 1 << 20  // bytes of run.json
	maxTask  = 1 << 30  // bytes of the resolved task
	maxLine  = 64 << 20 // bytes of a line of results

	maxAttempts = 1_000_000_000
)

// checkFiles rejects a folder in which a file of a run is replaced by something else: a link would be followed, and
// a pipe would block.
func (f *Folder) checkFiles() error {
	for _, name := range []string{aboutFile, taskFile, resultsFile, summaryFile, lockFile, ownerFile, journalsName} {
		info, err := os.Lstat(f.path(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return failed("read run", f.dir, err)
		case name == journalsName && !info.IsDir():
			return wrong("read run", f.path(name), errors.New("it is not a folder"))
		case name != journalsName && !info.Mode().IsRegular():
			return wrong("read run", f.path(name), errors.New("it is not a regular file"))
		}
	}
	return nil
}

// readLine reads a line including its newline, up to maxLine bytes.
func readLine(in *bufio.Reader) (raw []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if raw = append(raw, part...); !errors.Is(err, bufio.ErrBufferFull) {
			return raw, err
		}
		if len(raw) > maxLine {
			return nil, fmt.Errorf("a line has more than %d bytes", maxLine)
		}
	}
}

var (
	classes = []string{task.Infra, task.Config, task.Limit, task.Canceled}
	// outcomes includes the empty one: a custom solver may record a step with an unknown outcome.
	outcomes = []fumehood.Outcome{"", fumehood.Exited, fumehood.Signaled, fumehood.TimedOut, fumehood.OutOfMemory, fumehood.Lost}
)

// check rejects a result that no run can have recorded.
func check(r *task.SampleResult) error {
	if r.Epoch < 1 || r.Sample == "" || (r.Score == nil) == (r.Error == nil) {
		return errors.New("invalid result: it needs a sample, an epoch, and a score or an error")
	}
	if !isLine(r.Sandbox) {
		return fmt.Errorf("invalid sandbox name %q", r.Sandbox)
	}
	if e := r.Error; e != nil && (!slices.Contains(classes, e.Class) || !isLine(e.Phase)) {
		return fmt.Errorf("invalid failure: class %q, phase %q", e.Class, e.Phase)
	}
	for phase := range r.Phases {
		if !slices.Contains(phases, phase) {
			return fmt.Errorf("unknown phase %q", phase)
		}
	}
	steps := slices.Clone(r.Steps)
	if r.Grader != nil {
		steps = append(steps, *r.Grader)
	}
	for _, s := range steps {
		if !slices.Contains(outcomes, s.Outcome) {
			return fmt.Errorf("unknown outcome %q", s.Outcome)
		}
	}
	if r.Score == nil {
		return nil
	}
	scores := []float64{r.Score.Value}
	for _, part := range r.Score.Parts {
		scores = append(scores, part)
	}
	for _, value := range scores {
		if !(value >= 0 && value <= 1) { // false for NaN
			return fmt.Errorf("invalid score %v: must be from 0 to 1", value)
		}
	}
	return nil
}

// keysOnce rejects a JSON value in which an object has a key twice, ignoring case: readers would disagree about its
// value. With names, as for a score's parts, case matters. The value must be valid JSON.
func keysOnce(in *json.Decoder, names bool) error {
	token, err := in.Token()
	if err != nil {
		return err
	}
	keys := map[string]bool{}
	for in.More() && (token == json.Delim('{') || token == json.Delim('[')) {
		key := ""
		if token == json.Delim('{') {
			name, err := in.Token()
			if err != nil {
				return err
			}
			if key, _ = name.(string); !names {
				key = strings.ToLower(key)
			}
			if keys[key] {
				return fmt.Errorf("duplicate key %q", name)
			}
			keys[key] = true
		}
		if err := keysOnce(in, !names && key == "parts"); err != nil {
			return err
		}
	}
	if _, is := token.(json.Delim); is {
		_, err = in.Token()
	}
	return err
}

// isLine reports whether a text is a single line without control characters and invisible characters.
func isLine(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}
