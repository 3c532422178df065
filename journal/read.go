package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// Read yields the lines of a journal, in their order. A broken line is an error that says which, and the next ones follow: a
// process that was killed may have left such a line. One that is longer than MaxLine, or a failure to read, ends the sequence.
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

// parse reads one line.
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

// newLine makes an empty line of a kind; nil of one that is not known.
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
