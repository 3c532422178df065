package task

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/fumehood/fumehood"
)

// lateJournal buffers the journal of a sandbox that was started ahead, until its sample is known.
type lateJournal struct {
	mu   sync.Mutex
	held bytes.Buffer
	to   io.WriteCloser // nil until the sample is known
}

// maxHeld is the maximum size of the buffer in bytes. A start writes a few lines.
const maxHeld = 1 << 20

// Write buffers a line, or writes it to the opened journal.
func (j *lateJournal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.to != nil:
		return j.to.Write(line)
	case j.held.Len()+len(line) > maxHeld:
		return 0, errors.New("too many lines before the sandbox is used")
	}
	return j.held.Write(line)
}

// open writes the buffered lines to a journal, and all later lines.
func (j *lateJournal) open(to io.WriteCloser) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.to = to
	_, err := to.Write(j.held.Bytes())
	j.held = bytes.Buffer{}
	return err
}

// Close closes the journal. Lines still in the buffer are dropped: their sandbox was never used.
func (j *lateJournal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.to == nil {
		return nil
	}
	return j.to.Close()
}

// assign assigns a sandbox that was started ahead to an attempt. It removes the sandbox if that fails.
func (t *Task) assign(ctx context.Context, sb fumehood.Sandbox, of Key) (fumehood.Sandbox, error) {
	if err := sb.Assign(t.labels(sb.Info().Labels, of)); err != nil {
		return nil, failed(ctx, "assign a sandbox", err, t.End(ctx, sb))
	}
	t.mu.Lock()
	late := t.live[sb].late
	t.mu.Unlock()
	if late == nil {
		return sb, nil
	}
	w, err := t.opts.Journal(sb.Info().Name, of)
	if err == nil {
		err = late.open(w)
	}
	if err != nil {
		return nil, failed(ctx, "open the journal", err, t.End(ctx, sb))
	}
	return sb, nil
}
