package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// Read yields the lines of a journal in order. A broken line, which a killed process may leave, yields an error
// with its number, and the next lines follow. A line longer than MaxLine, or a read error, ends the sequence.
func Read(r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		s := bufio.NewScanner(r)
		s.Buffer(nil, MaxLine+1)
		n := 0
		for s.Scan() {
			n++
			line, err := parse(s.Bytes())
			if err != nil {
				err = fmt.Errorf("line %d of the journal: %w", n, err)
			}
			if !yield(line, err) {
				return
			}
		}
		if err := s.Err(); err != nil {
			yield(nil, fmt.Errorf("line %d of the journal: %w", n+1, err))
		}
	}
}

// parse decodes one line.
func parse(text []byte) (Line, error) {
	var h Head
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, err
	}
	line := newLine(h.Kind)
	if line == nil {
		return &Other{h, bytes.Clone(text)}, nil
	}
	if err := json.Unmarshal(text, line); err != nil {
		return nil, err
	}
	return line, nil
}

// newLine returns an empty line of a kind, or nil if the kind is unknown.
func newLine(kind string) Line {
	switch kind {
	case "phase":
		return &Phase{}
	case "network":
		return &Network{}
	case "sandbox":
		return &Sandbox{}
	case "command":
		return &Command{}
	case "end":
		return &End{}
	case "file":
		return &File{}
	case "lost":
		return &Lost{}
	}
	return nil
}
