package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/journal"
)

const (
	// maxJournal and maxJournals bound the bytes that one journal has, and those of all leases together. The oldest lines are
	// dropped first.
	maxJournal  = 8 << 20
	maxJournals = 256 << 20
	// maxEnded is how many journals of removed sandboxes a lease has. The oldest are dropped first.
	maxEnded = 256
)

// record is the journal of a sandbox. It stays until its lease ends, also when the sandbox is removed.
type record struct {
	s *Server

	mu    sync.Mutex
	lines [][]byte
	last  int // number of the last line, from 1; the numbers of lines have no gaps
	size  int64
	ended bool // nothing is held any more
}

// Write adds a line and drops old ones for it. It always succeeds.
func (r *record) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return len(line), nil
	}
	text := bytes.Clone(bytes.TrimRight(line, "\n"))
	size := int64(len(text)) + 1
	r.last++
	r.lines, r.size = append(r.lines, text), r.size+size
	for total := r.s.journals.Add(size); len(r.lines) > 0 && (r.size > maxJournal || total > maxJournals); {
		oldest := int64(len(r.lines[0])) + 1
		r.lines[0] = nil
		r.lines, r.size, total = r.lines[1:], r.size-oldest, r.s.journals.Add(-oldest)
	}
	return len(line), nil
}

// end drops all lines, and those that come later. It does nothing to nil.
func (r *record) end() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.s.journals.Add(-r.size)
	r.lines, r.size, r.ended = nil, 0, true
}

// after returns the lines that follow a number and are held, and the number of the first of them.
func (r *record) after(number int) (lines [][]byte, first int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return nil, 0, &fumehood.Error{Op: "read journal", Class: fumehood.ErrUnavailable, Err: errors.New("it has ended with the lease that started the sandbox, or was dropped for newer ones")}
	}
	first = r.last - len(r.lines) + 1
	from := min(max(number+1-first, 0), len(r.lines))
	return slices.Clone(r.lines[from:]), first + from, nil
}

// newRecord returns a journal that the lease does not have yet, and its logger for a spec.
func (s *Server) newRecord() (*record, *slog.Logger) {
	r := &record{s: s}
	return r, journal.New(r, s.opts.Logger).Logger
}

// keepRecord makes the lease have the journal of a sandbox. It drops that of an earlier sandbox with the same name, and the
// oldest ones of removed sandboxes.
func (l *lease) keepRecord(id string, r *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[string]*record{}
	}
	if earlier := l.records[id]; earlier != nil {
		l.dropRecord(id)
	}
	l.records[id] = r
	l.recorded = append(l.recorded, id)
	ended := 0
	for _, id := range slices.Backward(slices.Clone(l.recorded)) {
		if l.boxes[id] != nil || id == l.recorded[len(l.recorded)-1] {
			continue
		}
		if ended++; ended > maxEnded {
			l.dropRecord(id)
		}
	}
}

// dropRecord drops a journal. l.mu is held.
func (l *lease) dropRecord(id string) {
	l.records[id].end()
	delete(l.records, id)
	l.recorded = slices.DeleteFunc(l.recorded, func(other string) bool { return other == id })
}

// recordOf returns the journal of a sandbox of the lease, which may have been removed, or of a kept one.
func (l *lease) recordOf(ctx context.Context, id string) (*record, error) {
	l.mu.Lock()
	r := l.records[id]
	l.mu.Unlock()
	if r != nil {
		return r, nil
	}
	h, err := l.s.find(ctx, l, id)
	if err != nil {
		return nil, err
	}
	if h.record == nil {
		return nil, &fumehood.Error{
			Op: "read journal", Class: fumehood.ErrConfig, Err: errors.New("the sandbox has none in this server"), Hint: "start it with a journal (journal=true)",
		}
	}
	return h.record, nil
}

type journalInput struct {
	At
	After int `query:"after" minimum:"0" doc:"number of the last line that is already known"`
	Limit int `query:"limit" minimum:"0" doc:"largest number of lines; 0 means all"`
}

func (s *Server) registerJournals() {
	registerStream(s, op{http.MethodGet, "/v1/sandboxes/{sandbox}/journal", "get-journal", "Return the journal of a sandbox that was started with one, also after its removal, until its lease ends. The last line is the end", "Sandboxes"}, typeLines, api.JournalLine{}, withLease(func(ctx context.Context, l *lease, in *journalInput) (*huma.StreamResponse, error) {
		r, err := l.recordOf(ctx, in.Sandbox)
		if err != nil {
			return nil, err
		}
		all, first, err := r.after(in.After)
		if err != nil {
			return nil, err
		}
		if in.Limit > 0 {
			all = all[:min(len(all), in.Limit)]
		}
		return lines(func(send func(any) error) {
			for i, line := range all {
				if send(api.JournalLine{Type: api.EventEntry, Number: first + i, Entry: json.RawMessage(line)}) != nil {
					return
				}
			}
			_ = send(api.JournalLine{Type: api.EventEnd, Number: first + len(all) - 1})
		}), nil
	}))
}
