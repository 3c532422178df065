package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/journal"
)

// journalOf returns the lines of an answer with a journal, and their kinds.
func (c *served) journalOf(query string) (all []api.JournalLine, kinds []string) {
	c.t.Helper()
	resp := c.send("GET", "/v1/sandboxes/box/journal"+query, nil)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.t.Fatal(resp.Status)
	}
	for d := json.NewDecoder(resp.Body); ; {
		var line api.JournalLine
		if err := d.Decode(&line); err != nil {
			c.t.Fatal(err) // no end came
		}
		if line.Type == api.EventEnd {
			if len(all) > 0 && line.Number != all[len(all)-1].Number {
				c.t.Errorf("the end has the number %d", line.Number)
			}
			return all, kinds
		}
		var head journal.Head
		if err := json.Unmarshal(line.Entry, &head); err != nil || head.Sandbox != "box" {
			c.t.Errorf("%s: %v", line.Entry, err)
		}
		all, kinds = append(all, line), append(kinds, head.Kind)
	}
}

func TestJournal(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	c.ok("POST", "/v1/sandboxes?journal=true", fumehood.Spec{Name: "box"}, nil)
	c.ok("POST", "/v1/sandboxes/box/run", sh("echo secret-output"), nil)
	all, kinds := c.journalOf("")
	if got := strings.Join(kinds[len(kinds)-2:], " "); got != "command end" || all[0].Number != 1 {
		t.Errorf("%+v", all)
	}
	if text := string(all[len(all)-1].Entry); strings.Contains(text, "secret-output") || !strings.Contains(text, `"stdout_bytes":14`) {
		t.Error(text)
	}
	if page, _ := c.journalOf("?after=1&limit=1"); len(page) != 1 || page[0].Number != 2 || !bytes.Equal(page[0].Entry, all[1].Entry) {
		t.Errorf("%+v", page)
	}
	if page, _ := c.journalOf("?after=1000"); len(page) != 0 {
		t.Errorf("%+v", page)
	}
	c.ok("DELETE", "/v1/sandboxes/box", nil, nil)
	if _, kinds = c.journalOf(fmt.Sprintf("?after=%d", len(all))); strings.Join(kinds, " ") != "phase" {
		t.Errorf("after the removal: %q", kinds)
	}
	c.ok("POST", "/v1/sandboxes", fumehood.Spec{Name: "none"}, nil)
	c.fails(400, fumehood.CodeConfig, "GET", "/v1/sandboxes/none/journal", nil)
	c.fails(404, api.CodeSandboxNotFound, "GET", "/v1/sandboxes/unknown/journal", nil)
	for _, query := range []string{"after=-1", "since=5", "after=1&limit=x"} {
		status, _ := c.answer("GET", "/v1/sandboxes/box/journal?"+query, nil)
		if status != 422 && status != 400 {
			t.Errorf("%s: %d", query, status)
		}
	}
	c.fails(422, fumehood.CodeUnsupported, "POST", "/v1/sandboxes/none/kill-all", struct{}{}) // by the local provider
	if c.journals.Load() == 0 {
		t.Error("no bytes are counted")
	}
	c.ok("DELETE", "/v1/leases/"+c.lease, nil, nil)
	c.stop()
	if n := c.journals.Load(); n != 0 {
		t.Errorf("%d bytes are counted after the end of the lease", n)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	s := &Server{}
	line := append(bytes.Repeat([]byte{'x'}, 1<<20-1), '\n')
	r, other := &record{s: s}, &record{s: s}
	for range 20 {
		if n, err := r.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if lines, first, err := r.after(0); len(lines) != 8 || first != 13 || err != nil || len(lines[0]) != 1<<20-1 {
		t.Errorf("%d lines from %d, %v", len(lines), first, err)
	}
	if lines, first, _ := r.after(18); len(lines) != 2 || first != 19 {
		t.Errorf("%d lines from %d", len(lines), first)
	}
	s.journals.Add(maxJournals - s.journals.Load())
	for range 2 { // there is no room for another journal
		_, _ = other.Write(line)
	}
	if lines, first, err := other.after(0); len(lines) != 0 || first != 3 || err != nil {
		t.Errorf("%d lines from %d, %v", len(lines), first, err)
	}
	r.end()
	if _, _, err := r.after(0); fumehood.CodeOf(err) != fumehood.CodeUnavailable {
		t.Error(err)
	}
	_, _ = r.Write(line)
	if got := s.journals.Load(); got != maxJournals-8<<20 {
		t.Errorf("%d bytes are counted", got)
	}
}

func TestLease_keepRecord(t *testing.T) {
	t.Parallel()
	s := &Server{kept: map[string]*held{}}
	l := &lease{s: s, boxes: map[string]*held{"living": {}}}
	for _, id := range []string{"living", "same", "same"} {
		r := &record{s: s}
		l.keepRecord(id, r)
		_, _ = r.Write([]byte("x\n"))
	}
	for i := range maxEnded {
		l.keepRecord(fmt.Sprint(i), &record{s: s})
	}
	if l.records["living"] == nil || l.records["same"] == nil || len(l.records) != maxEnded+2 {
		t.Errorf("%d journals", len(l.records))
	}
	l.keepRecord("last", &record{s: s})
	if l.records["living"] == nil || l.records["same"] != nil || s.journals.Load() != 2 {
		t.Errorf("%d journals, %d bytes", len(l.records), s.journals.Load())
	}
}
