package buildkit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
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

// trace follows a build by buildctl's output.
type trace struct {
	steps image.Steps
	last  string // the last line that is no status
}

// maxLine is the maximum length of a line of buildctl's output, in bytes. BuildKit sends output of steps in pieces of
// some KiB. What follows a longer line is not read.
const maxLine = 4 << 20

func (t *trace) readProgress(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var s status
		if json.Unmarshal(lines.Bytes(), &s) != nil {
			if line := strings.TrimSpace(lines.Text()); line != "" {
				t.last = line
			}
			continue
		}
		for _, v := range s.Vertexes {
			t.steps.Step(v.Digest, v.Name, v.Started != nil, v.Error)
		}
		for _, l := range s.Logs {
			t.steps.Print(l.Vertex, string(l.Data))
		}
	}
	_, _ = io.Copy(io.Discard, r) // so that the program can end
}

// failure returns the error of a build.
func (t *trace) failure(err error) error {
	class, reason := fumehood.ErrConfig, t.steps.Failure
	if reason == "" {
		reason = t.last
		if !strings.Contains(reason, "failed to solve") {
			class, reason = fumehood.ErrInfrastructure, fmt.Sprintf("buildctl: %v: %s", err, reason)
		}
	}
	if strings.Contains(reason, "no space left on device") {
		class = fumehood.ErrInfrastructure
	}
	return &fumehood.Error{Op: "build image", Class: class, Err: errors.New(t.steps.Describe(reason, image.ExitCode(reason)))}
}
