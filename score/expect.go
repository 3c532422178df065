// Package score says how good an attempt at a task's sample was: by what is expected of its commands and of the files
// they leave (Expect, Expectations), or by a command in a fresh sandbox that the attempt has never touched (Grader).
// Both read nothing by the help of the attempt's sandbox, which is hostile, and neither makes a score of a failure of
// ours. It knows fumehood.Provider, and no container engine.
package score

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// Expect is what is expected of a command that ran, and of the files that are there then. The zero value expects that
// it exits with code 0. The yaml and form tags of this and the types below are those of task files.
type Expect struct {
	// ExitCode is the code that the command exits with, or a list of such codes. Absent means 0, unless outcome says
	// otherwise.
	ExitCode []int `yaml:"exit_code"`
	// Outcome is how the command ends: exited (also when absent), signaled, timed-out or out-of-memory.
	Outcome fumehood.Outcome `yaml:"outcome" form:"outcome"`
	// Stdout is what standard output is.
	Stdout *Text `yaml:"stdout"`
	// Stderr is what standard error is.
	Stderr *Text `yaml:"stderr"`
	// Files are what files are once the attempt is done, as PATH: {CHECKS} or SERVICE:PATH: {CHECKS}. They are read
	// through the container engine; a link, and all else that is no regular file, counts as not there.
	Files map[string]*File `yaml:"files"`
}

// File is what is expected of a file. The zero value expects that it is there.
type File struct {
	// Absent says that there is nothing at the path.
	Absent bool `yaml:"absent"`
	Text   `yaml:",inline"`
}

// Text is what is expected of a text; all that is said has to hold. The zero value takes any.
type Text struct {
	// Exact is the text, byte for byte.
	Exact *string `yaml:"exact"`
	// Trimmed is the text but for white space at its two ends and at the ends of its lines.
	Trimmed *string `yaml:"trimmed"`
	// Contains are texts that are in it.
	Contains []string `yaml:"contains"`
	// Regexp is a regular expression in Go's syntax that matches somewhere in it.
	Regexp string `yaml:"regexp" form:"regexp"`
	// JSON is the value that it is as JSON: the order of keys, white space and how numbers are written do not count.
	JSON json.RawMessage `yaml:"json"`
	// Numbers are numbers, and words between them, that are compared with a tolerance.
	Numbers *Numbers `yaml:"numbers"`
}

// Numbers is a text of words, with white space between them. Words that are numbers are compared as numbers: one is
// right that is within either tolerance. Others are compared as texts.
type Numbers struct {
	// Text has the words.
	Text string `yaml:"text" form:"some" required:"true"`
	// Absolute is by how much a number may be off.
	Absolute float64 `yaml:"absolute" form:"tolerance"`
	// Relative is by how much of the expected number's amount a number may be off.
	Relative float64 `yaml:"relative" form:"tolerance"`
}

// maxFile is the largest file in bytes of which a content is expected.
const maxFile = 10 << 20

// Validate checks what can be checked without a result. Its errors are fumehood.ErrConfig.
func (e *Expect) Validate() error {
	err := e.validate()
	if err == nil {
		return nil
	}
	return &fumehood.Error{Op: "read expectations", Class: fumehood.ErrConfig, Err: err}
}

func (e *Expect) validate() error {
	switch e.Outcome {
	case "", fumehood.Exited, fumehood.Signaled, fumehood.TimedOut, fumehood.OutOfMemory:
	default:
		return fmt.Errorf("there is no outcome %q to expect", e.Outcome)
	}
	if e.outcome() != fumehood.Exited && len(e.ExitCode) > 0 {
		return fmt.Errorf("an exit code and the outcome %q exclude each other", e.Outcome)
	}
	for name, t := range map[string]*Text{"stdout": e.Stdout, "stderr": e.Stderr} {
		if err := t.validate(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for path, f := range e.Files {
		if f == nil {
			continue
		}
		if f.Absent && !f.isZero() {
			return fmt.Errorf("file %q: what is absent has no content", path)
		}
		if err := f.validate(); err != nil {
			return fmt.Errorf("file %q: %w", path, err)
		}
	}
	return nil
}

// outcome is that which is expected.
func (e *Expect) outcome() fumehood.Outcome {
	if e.Outcome == "" {
		return fumehood.Exited
	}
	return e.Outcome
}

// Check says, for a person, what of a result is not as expected; nothing where all is. Files are not looked at. A
// command of which it is not known how it ended is an error, a fumehood.ErrUnavailable. The end of ctx ends it.
func (e *Expect) Check(ctx context.Context, r *fumehood.Result) (reasons []string, err error) {
	if r.Outcome == fumehood.Lost {
		return nil, &fumehood.Error{Op: "check a command", Class: fumehood.ErrUnavailable, Err: errors.New(strings.TrimRight("it is lost: "+r.Reason, ": "))}
	}
	codes := e.ExitCode
	if len(codes) == 0 {
		codes = []int{0}
	}
	switch {
	case r.Outcome != e.outcome():
		reasons = append(reasons, fmt.Sprintf("it %s, and was expected to have %s", ended(r), past(e.outcome())))
	case r.Outcome == fumehood.Exited && !slices.Contains(codes, r.ExitCode):
		reasons = append(reasons, fmt.Sprintf("it exited with code %d, and was expected to with %s", r.ExitCode, anyOf(codes)))
	}
	for _, out := range []struct {
		name   string
		expect *Text
		fumehood.Output
	}{{"standard output", e.Stdout, r.Stdout}, {"standard error", e.Stderr, r.Stderr}} {
		switch {
		case out.expect == nil:
		case out.Truncated():
			reasons = append(reasons, fmt.Sprintf("%s is too long to be compared: %d bytes, of which the last %d were kept", out.name, out.Total, len(out.Bytes)))
		default:
			wrong, err := out.expect.check(ctx, out.Bytes)
			if err != nil {
				return nil, err
			}
			for _, why := range wrong {
				reasons = append(reasons, out.name+" "+why)
			}
		}
	}
	return reasons, nil
}

// ended says how a command ended, after "it".
func ended(r *fumehood.Result) string {
	switch r.Outcome {
	case fumehood.Exited:
		return fmt.Sprintf("exited with code %d", r.ExitCode)
	case fumehood.Signaled:
		return fmt.Sprintf("was ended by signal %d", r.Signal)
	case fumehood.TimedOut:
		return fmt.Sprintf("timed out after %v", r.Duration.Round(1e6))
	case fumehood.OutOfMemory:
		return "ran out of memory"
	}
	return "is " + string(r.Outcome)
}

// past is an outcome, after "have".
func past(o fumehood.Outcome) string {
	switch o {
	case fumehood.Signaled:
		return "been ended by a signal"
	case fumehood.TimedOut:
		return "timed out"
	case fumehood.OutOfMemory:
		return "run out of memory"
	}
	return string(o)
}

func anyOf(codes []int) string {
	texts := make([]string, len(codes))
	for i, c := range codes {
		texts[i] = fmt.Sprint(c)
	}
	return strings.Join(texts, " or ")
}
