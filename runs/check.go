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

// A run's folder may come from somebody else. What is in it is checked before it is used.

const (
	maxAbout = 1 << 20  // bytes of run.json
	maxTask  = 1 << 30  // bytes of the resolved task
	maxLine  = 64 << 20 // bytes of a line of results

	maxAttempts = 1_000_000_000
)

// checkFiles refuses a folder in which something else takes the place of a run's file: a link, which would be followed, or
// a pipe, which would be waited for.
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

// readLine reads a line with its end, of at most maxLine bytes.
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
	classes = []string{task.Infra, task.Config, task.Limit, task.Cancelled}
	// A solver of one's own may record a step of which it knows no outcome.
	outcomes = []fumehood.Outcome{"", fumehood.Exited, fumehood.Signaled, fumehood.TimedOut, fumehood.OutOfMemory, fumehood.Lost}
)

// check refuses what no run has recorded.
func check(r *task.SampleResult) error {
	if r.Epoch < 1 || r.Sample == "" || (r.Score == nil) == (r.Error == nil) {
		return errors.New("it is no result: it needs a sample, an epoch, and a score or an error")
	}
	if !isLine(r.Sandbox) {
		return fmt.Errorf("%q is no sandbox's name", r.Sandbox)
	}
	if e := r.Error; e != nil && (!slices.Contains(classes, e.Class) || !isLine(e.Phase)) {
		return fmt.Errorf("%q in %q is no failure", e.Class, e.Phase)
	}
	for phase := range r.Phases {
		if !slices.Contains(phases, phase) {
			return fmt.Errorf("%q is no phase", phase)
		}
	}
	for _, s := range r.Steps {
		if !slices.Contains(outcomes, s.Outcome) {
			return fmt.Errorf("%q is no outcome", s.Outcome)
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
		if !(value >= 0 && value <= 1) { // no number is neither
			return fmt.Errorf("%v is no score, which is from 0 to 1", value)
		}
	}
	return nil
}

// keysOnce refuses a JSON value in which an object has a key twice, in capitals or not: readers would take one or the other.
// With names, as those of a score's parts, capitals make another key. The value must be valid.
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
				return fmt.Errorf("the key %q is there twice", name)
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

// isLine reports whether a text is one line, without characters that do something to a terminal or that nobody sees.
func isLine(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}
