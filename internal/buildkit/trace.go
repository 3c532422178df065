package buildkit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"

	"github.com/fumehood/fumehood"
)

// status is a line of buildctl's output: steps that have changed, and what steps have printed.
type status struct {
	Vertexes []struct {
		Digest, Name, Error string
		Started             *string
	}
	Logs []struct {
		Vertex string
		Data   []byte
	}
}

// step is a step of a build. Several may run at once.
type step struct {
	name    string // "[2/3] RUN make"
	started bool
	printed string // the end of its output
}

// trace follows a build by buildctl's output.
type trace struct {
	b      Build
	steps  map[string]*step // by digest
	failed *step
	cause  string // why it failed
	said   string // the last line that is no status
}

// maxLine is the maximum length of a line of buildctl's output, in bytes. BuildKit sends output of steps in pieces of
// some KiB. What follows a longer line is not read.
const maxLine = 4 << 20

func (t *trace) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var s status
		if json.Unmarshal(lines.Bytes(), &s) != nil {
			if line := strings.TrimSpace(lines.Text()); line != "" {
				t.said = line
			}
			continue
		}
		t.add(s)
	}
	_, _ = io.Copy(io.Discard, r) // so that the program can end
}

func (t *trace) add(s status) {
	for _, v := range s.Vertexes {
		of := t.steps[v.Digest]
		if of == nil {
			of = &step{name: line(t.b.Mask(v.Name))}
			t.steps[v.Digest] = of
		}
		if v.Started != nil && !of.started {
			of.started = true
			if !strings.HasPrefix(of.name, "[internal]") {
				t.b.Progress(of.name)
			}
		}
		if v.Error != "" && !strings.HasSuffix(v.Error, "context canceled") {
			t.failed, t.cause = of, v.Error
		}
	}
	for _, l := range s.Logs {
		if of := t.steps[l.Vertex]; of != nil {
			printed := of.printed + string(l.Data)
			of.printed = printed[max(0, len(printed)-2*maxSaid):] // twice: a value to hide may be cut
		}
	}
}

// exitCode matches the error of a step whose program has failed.
var exitCode = regexp.MustCompile(`did not complete successfully: (exit code: [0-9]+)`)

// failure returns the error of a build.
func (t *trace) failure(err error) error {
	e := &fumehood.Error{Op: "build image", Class: fumehood.ErrConfig}
	says := t.cause
	switch {
	case t.failed == nil && !strings.Contains(t.said, "failed to solve"):
		e.Class = fumehood.ErrInfrastructure
		says = fmt.Sprintf("buildctl: %v: %s", err, t.said)
	case t.failed == nil:
		says = t.said
	}
	if strings.Contains(says, "no space left on device") {
		e.Class = fumehood.ErrInfrastructure
	}
	if m := exitCode.FindStringSubmatch(says); m != nil {
		says = m[1] // the message repeats the whole command
	}
	says = last(t.b.Mask(says))
	if t.failed != nil {
		says = t.failed.name + ": " + says
		if printed := last(t.b.Mask(t.failed.printed)); printed != "" {
			says += "; it printed last:\n  " + strings.ReplaceAll(printed, "\n", "\n  ")
		}
	}
	e.Err = errors.New(says)
	return e
}

// last returns the end of a text, of at most maxSaid bytes.
func last(text string) string {
	text = strings.TrimSpace(clean(text))
	return strings.ToValidUTF8(text[max(0, len(text)-maxSaid):], "")
}

// line turns an instruction into one short line.
func line(instruction string) string {
	const most = 100
	text := []rune(clean(strings.Join(strings.Fields(instruction), " ")))
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}

// color matches a terminal's escape sequence.
var color = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// clean removes terminal escape sequences and other characters that are not printable.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, color.ReplaceAllString(text, ""))
}
