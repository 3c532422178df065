package runs

import (
	"bufio"
	"bytes"
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
	"github.com/fumehood/fumehood/eval/task"
)

// A run's folder may come from another person, so its contents are validated before use.

const (
	maxAbout = 1 << 20  // bytes of run.json
	maxTask  = 1 << 30  // bytes of the resolved task
	maxLine  = 64 << 20 // bytes of a line of results

	maxAttempts = 1_000_000_000

	maxValues = 1_000_000 // JSON values of a result, or of run.json
	maxLevels = 100       // levels of nested JSON values
)

// checkFiles rejects a folder in which a file of a run is replaced by something else: a link would be followed, and
// a pipe would block.
func (f *Folder) checkFiles() error {
	for _, name := range []string{aboutFile, taskFile, resultsFile, summaryFile, lockFile, ownerFile, journalsName, sourceName} {
		info, err := os.Lstat(f.path(name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return pathError("read run", f.dir, err)
		case isFolder(name) && !info.IsDir():
			return wrong("read run", f.path(name), errors.New("it is not a folder"))
		case !isFolder(name) && !info.Mode().IsRegular():
			return wrong("read run", f.path(name), errors.New("it is not a regular file"))
		}
	}
	return nil
}

// isFolder reports whether what has this name in a run's folder is a folder.
func isFolder(name string) bool { return name == journalsName || name == sourceName }

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
	outcomes = append([]fumehood.Outcome{""}, fumehood.Outcomes()...)
)

// checkRecorded rejects a result that no run can have recorded.
func checkRecorded(r *task.SampleResult) error {
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

// checkJSON rejects a JSON value that is too large or too deep, and one in which an object has a key twice: readers
// would disagree about its value. Keys differ also if only their case differs, except in a score's parts and in metadata.
func checkJSON(data []byte) error {
	c := jsonChecker{in: json.NewDecoder(bytes.NewReader(data)), left: maxValues}
	return c.value(false, maxLevels)
}

type jsonChecker struct {
	in   *json.Decoder
	left int // values that may follow
}

// value reads a value of at most the given number of levels. Its keys are names where case matters.
func (c *jsonChecker) value(names bool, levels int) error {
	token, err := c.in.Token()
	if err != nil {
		return err
	}
	opens, nested := token.(json.Delim)
	if c.left--; c.left < 0 {
		return fmt.Errorf("more than %d values", maxValues)
	}
	if !nested {
		return nil
	}
	if levels == 0 {
		return fmt.Errorf("more than %d levels", maxLevels)
	}
	keys := map[string]bool{}
	for c.in.More() {
		key := ""
		if opens == '{' {
			if key, err = c.key(keys, names); err != nil {
				return err
			}
		}
		if err := c.value(!names && (key == "parts" || key == "metadata"), levels-1); err != nil {
			return err
		}
	}
	_, err = c.in.Token()
	return err
}

// key reads a key and adds it to those of its object.
func (c *jsonChecker) key(keys map[string]bool, names bool) (string, error) {
	token, err := c.in.Token()
	if err != nil {
		return "", err
	}
	key, _ := token.(string)
	if !names {
		key = strings.ToLower(key)
	}
	if keys[key] {
		return "", fmt.Errorf("duplicate key %q", token)
	}
	keys[key] = true
	return key, nil
}

// isLine reports whether a text is a single line without control characters and invisible characters.
func isLine(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}
