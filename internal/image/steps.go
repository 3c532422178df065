package image

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// maxPrinted is how much of a step's output, or of the reason for a failure, an error includes, in bytes.
const maxPrinted = 2 << 10

// Steps follows the steps of a build by what its builder reports. Several may run at once. It is not safe for concurrent
// use.
type Steps struct {
	// Report is called with the name of each step when it begins. Nil disables reports.
	Report func(step string)
	// Mask hides values in the names and the output of steps, which it gets before they are cut. Nil hides nothing.
	Mask func(string) string
	// Failure is why a step has failed; empty if none has.
	Failure string

	all    map[string]*step
	failed *step
}

// step is a step of a build.
type step struct {
	name    string // "[2/3] RUN make"
	started bool
	printed string // the end of its output
}

// Step records a step of the builder, or what has changed about it. failure is why it failed; empty if it did not.
func (s *Steps) Step(id, name string, started bool, failure string) {
	s1 := s.all[id]
	if s1 == nil {
		if s.all == nil {
			s.all = map[string]*step{}
		}
		s1 = &step{name: line(s.mask(name))}
		s.all[id] = s1
	}
	if started && !s1.started {
		s1.started = true
		if s.Report != nil && !unreported.MatchString(s1.name) {
			s.Report(s1.name)
		}
	}
	if failure != "" && !strings.HasSuffix(failure, "context canceled") { // because another one has failed
		s.failed, s.Failure = s1, failure
	}
}

func (s *Steps) mask(text string) string {
	if s.Mask == nil {
		return text
	}
	return s.Mask(text)
}

// unreported matches the names of steps that are the builder's own, or Fumehood's.
var unreported = regexp.MustCompile(`^\[internal\]|^step [0-9/]+, LABEL fumehood\.`)

// Print records output of a step.
func (s *Steps) Print(id, text string) {
	if step := s.all[id]; step != nil {
		step.printed = last(s.mask(step.printed + text)) // a value to hide may come in two pieces
	}
}

// Describe returns the text of an error: the step that has failed, the reason, and the end of the step's output. The
// reason is shortened to the exit code of the step's program, unless that is 0.
func (s *Steps) Describe(reason string, exitCode int) string {
	text := strings.TrimSpace(clean(last(s.mask(reason))))
	if exitCode != 0 { // the reason repeats the whole command
		text = fmt.Sprintf("exit code %d", exitCode)
	}
	if s.failed == nil {
		return text
	}
	text = s.failed.name + ": " + text
	if printed := strings.TrimSpace(clean(s.failed.printed)); printed != "" {
		text += "; it printed last:\n  " + strings.ReplaceAll(printed, "\n", "\n  ")
	}
	return text
}

// exitCode matches the end of BuildKit's message about a program that failed.
var exitCode = regexp.MustCompile(`(?:did not complete successfully|executor failed running .*): exit code: ([0-9]+)$`)

// ExitCode returns the exit code in BuildKit's message about a program that failed; 0 if it is another message.
func ExitCode(message string) int {
	m := exitCode.FindStringSubmatch(strings.TrimSpace(message))
	if m == nil {
		return 0
	}
	code, _ := strconv.Atoi(m[1]) // digits
	return code
}

// last returns the end of a text that is kept.
func last(text string) string { return text[max(0, len(text)-maxPrinted):] }

// line turns an instruction into one short line.
func line(instruction string) string {
	const most = 100
	text := []rune(clean(strings.Join(strings.Fields(instruction), " ")))
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}

// color matches a terminal's escape sequence. The Engine puts some around output to standard error.
var color = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// clean removes terminal escape sequences and other characters that are not printable.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, color.ReplaceAllString(strings.ToValidUTF8(text, ""), ""))
}
