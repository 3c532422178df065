// Package score scores attempts at a task's sample: by expectations about its commands and the files that they
// leave (Expect, Expectations), or by a command in a new sandbox that the attempt has never used (Grader). The
// attempt's sandbox is untrusted: both read it without help from processes in it. Infrastructure errors never
// become a score. The package uses fumehood.Provider and no container engine directly.
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

// Expect is the expected outcome of a command, and the expected state of files afterwards. The zero value expects
// exit code 0. The yaml and form tags of this and the types below are those of task files.
type Expect struct {
	// ExitCode is the expected exit code, or a list of accepted codes. Absent means 0, unless outcome is set to
	// something else than exited.
	ExitCode []int `yaml:"exit_code"`
	// Outcome is the expected end of the command: exited (the default), signaled, timed-out, cpu-time-exceeded
	// or out-of-memory.
	Outcome fumehood.Outcome `yaml:"outcome" form:"outcome"`
	// Stdout is the expected standard output.
	Stdout *Text `yaml:"stdout"`
	// Stderr is the expected standard error.
	Stderr *Text `yaml:"stderr"`
	// Files are the expected files at the end of the attempt, as PATH: {CHECKS} or SERVICE:PATH: {CHECKS}. They
	// are read through the container engine. Links and other files that are not regular count as missing.
	Files map[string]*File `yaml:"files"`
}

// File is the expected state of a file. The zero value expects that it exists.
type File struct {
	// Absent expects that nothing exists at the path.
	Absent bool `yaml:"absent"`
	Text   `yaml:",inline"`
}

// Text is the expected content of a text; all checks must pass. The zero value accepts any text.
type Text struct {
	// Exact is the expected text, byte for byte.
	Exact *string `yaml:"exact"`
	// Trimmed is the expected text, ignoring white space at its beginning, its end and the ends of its lines.
	Trimmed *string `yaml:"trimmed"`
	// Contains are texts that it must contain.
	Contains []string `yaml:"contains"`
	// Regexp is a regular expression in Go's syntax that must match somewhere in it.
	Regexp string `yaml:"regexp" form:"regexp"`
	// JSON is the expected JSON value. The order of keys, white space and the notation of numbers do not matter.
	JSON json.RawMessage `yaml:"json"`
	// Numbers are the expected numbers, and words between them. Numbers are compared with a tolerance.
	Numbers *Numbers `yaml:"numbers"`
}

// Numbers is a text of words, separated by white space. Words that are decimal numbers, such as -1.5e3, are compared as
// numbers, exactly and without rounding: a number is right if its difference is at most one of the two tolerances. Other
// words are compared as text, also nan, inf, and numbers whose exponent takes more than 32 bits.
type Numbers struct {
	// Text is the expected text.
	Text string `yaml:"text" form:"some" required:"true"`
	// Absolute is the largest accepted difference of a number. It counts as the shortest decimal number that rounds to
	// the float64: 0.1 is exactly a tenth.
	Absolute float64 `yaml:"absolute" form:"tolerance"`
	// Relative is the largest accepted difference of a number, divided by the absolute value of the expected number.
	Relative float64 `yaml:"relative" form:"tolerance"`
}

// maxFile is the size in bytes of the largest file whose content can be checked.
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
	if e.Outcome != "" && !slices.Contains(Outcomes(), e.Outcome) {
		return fmt.Errorf("outcome %q cannot be expected", e.Outcome)
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
			return fmt.Errorf("file %q: absent and checks of the content exclude each other", path)
		}
		if err := f.validate(); err != nil {
			return fmt.Errorf("file %q: %w", path, err)
		}
	}
	return nil
}

// Outcomes returns the outcomes that can be expected: those whose cause is the program.
func Outcomes() []fumehood.Outcome {
	return slices.DeleteFunc(fumehood.Outcomes(), func(o fumehood.Outcome) bool { return o == fumehood.Lost })
}

// outcome returns the expected outcome.
func (e *Expect) outcome() fumehood.Outcome {
	if e.Outcome == "" {
		return fumehood.Exited
	}
	return e.Outcome
}

// Check returns, as text for people, the differences between a result and the expectations. It does not check
// files. If it is unknown how the command ended, Check returns an ErrUnavailable. The end of ctx stops it.
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
		reasons = append(reasons, fmt.Sprintf("it %s, and was expected to have %s", describeResult(r), past(e.outcome())))
	case r.Outcome == fumehood.Exited && !slices.Contains(codes, r.ExitCode):
		reasons = append(reasons, fmt.Sprintf("it %s, and was expected to exit with %s", describeResult(r), anyOf(codes)))
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

// describeResult returns how a command ended, as a phrase after "it".
func describeResult(r *fumehood.Result) string {
	if r.Reason == "" || r.Outcome == fumehood.Lost {
		return describeOutcome(r)
	}
	return describeOutcome(r) + " (" + r.Reason + ")"
}

func describeOutcome(r *fumehood.Result) string {
	switch r.Outcome {
	case fumehood.Exited:
		return fmt.Sprintf("exited with code %d", r.ExitCode)
	case fumehood.Signaled:
		return fmt.Sprintf("was ended by signal %d", r.Signal)
	case fumehood.TimedOut:
		return fmt.Sprintf("timed out after %v", r.Duration.Round(1e6))
	case fumehood.CPUTimeExceeded:
		return "exceeded its limit of processor time"
	case fumehood.OutOfMemory:
		return "ran out of memory"
	case fumehood.Lost:
	}
	return "is " + string(r.Outcome)
}

// past returns an outcome as a phrase after "have".
func past(o fumehood.Outcome) string {
	switch o {
	case fumehood.Signaled:
		return "been ended by a signal"
	case fumehood.TimedOut:
		return "timed out"
	case fumehood.CPUTimeExceeded:
		return "exceeded its limit of processor time"
	case fumehood.OutOfMemory:
		return "run out of memory"
	case fumehood.Exited, fumehood.Lost:
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
