package task

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/fumehood/fumehood"
)

// lateJournal holds the lines of a sandbox that was started ahead until it is known for which sample it is.
type lateJournal struct {
	mu   sync.Mutex
	held bytes.Buffer
	to   io.WriteCloser // nil until it is known
}

// maxHeld bounds what is held, in bytes. A start takes a few lines.
const maxHeld = 1 << 20

// Write holds a line, or passes it on.
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

// open passes on what is held, and all that comes.
func (j *lateJournal) open(to io.WriteCloser) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.to = to
	_, err := to.Write(j.held.Bytes())
	j.held = bytes.Buffer{}
	return err
}

// Close closes what the lines go to. What is still held is of a sandbox that was not used, and goes.
func (j *lateJournal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.to == nil {
		return nil
	}
	return j.to.Close()
}

// assign makes a sandbox that was started ahead that of an attempt, or removes it where that fails.
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
