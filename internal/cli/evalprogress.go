package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood/eval/task"
)

// evalProgress prints the progress of a run: on a terminal as one line that is redrawn, otherwise, or if TERM is dumb,
// as a new line every few seconds.
type evalProgress struct {
	w        io.Writer
	terminal *os.File // nil if w is not a terminal that can redraw a line
	every    time.Duration
	began    time.Time

	end     sync.Once
	mu      sync.Mutex
	now     task.Progress
	shown   string        // text of the terminal's line
	printed task.Progress // counts in the last printed line
	done    chan struct{}
	ended   chan struct{}
}

const (
	lineEvery    = 5 * time.Second
	counterEvery = 200 * time.Millisecond
)

// newEvalProgress starts printing progress to w. The caller must call stop.
func newEvalProgress(w io.Writer) *evalProgress {
	p := &evalProgress{w: w, every: lineEvery, began: time.Now(), done: make(chan struct{}), ended: make(chan struct{})}
	if f, ok := w.(*os.File); ok && isTerminal(f) && os.Getenv("TERM") != "dumb" {
		p.terminal, p.every = f, counterEvery
	}
	go p.run()
	return p
}

// report sets the current counts. It does not block on output.
func (p *evalProgress) report(now task.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}

func (p *evalProgress) run() {
	defer close(p.ended)
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
			p.tell()
		}
	}
}

// tell prints the counts if they have changed.
func (p *evalProgress) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.now.Total == 0:
	case p.terminal != nil:
		p.draw(p.line())
	case p.now != p.printed:
		p.printed = p.now
		fmt.Fprintf(p.w, "fumehood: %s\n", p.line())
	}
}

// line formats the counts.
func (p *evalProgress) line() string {
	n := p.now
	parts := []string{fmt.Sprintf("%d/%d done", n.Passed+n.Failed+n.Errors, n.Total)}
	for _, count := range []struct {
		n     int
		label string
	}{{n.Passed, "passed"}, {n.Failed, "failed"}, {n.Errors, "without a score"}, {n.Running, "running"}, {n.Starting, "starting"}} {
		if count.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count.n, count.label))
		}
	}
	return strings.Join(parts, ", ") + ", " + time.Since(p.began).Round(time.Second).String()
}

// draw replaces the terminal's line with text. Text is cut to the terminal's width, because a wrapped line cannot be
// cleared.
func (p *evalProgress) draw(text string) {
	if _, cols := size(p.terminal); cols > 1 && len(text) >= int(cols) {
		text = text[:cols-1] // the texts are ASCII
	}
	if text == p.shown {
		return
	}
	p.shown = text
	fmt.Fprint(p.w, "\r\x1b[K"+text)
}

// Write writes lines above the terminal's line. Everything else that goes to the same terminal uses it.
func (p *evalProgress) Write(lines []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown == "" {
		return p.w.Write(lines)
	}
	text := p.shown
	p.draw("")
	n, err := p.w.Write(lines)
	p.draw(text)
	return n, err
}

// stop stops printing and clears the terminal's line. It may be called twice.
func (p *evalProgress) stop() {
	p.end.Do(func() { close(p.done) })
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal != nil {
		p.draw("")
	}
}
