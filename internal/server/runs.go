package server

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/eval/runs"
)

// OnRun is the input of requests about a run, which needs no evaluation.
type OnRun struct {
	Leased
	Run string `query:"run" required:"true" minLength:"1" maxLength:"4096" doc:"path of the run's folder on the server's machine"`
}

// checkRunPath returns an error if the client may not read a path, which must be absolute.
func (s *Server) checkRunPath(path string) error {
	if !filepath.IsAbs(path) {
		return bad("the path %q is not absolute", path)
	}
	return s.opts.Permit.checkPaths([]string{path})
}

// onRun makes a handler that gets the folder of a run.
func onRun[I interface {
	ackedKeys() []string
	path() string
}, O any](s *Server, f func(*runs.Folder, *I) (*O, error)) func(context.Context, *I) (*O, error) {
	return withLease(func(_ context.Context, _ *lease, in *I) (*O, error) {
		if err := s.checkRunPath((*in).path()); err != nil {
			return nil, err
		}
		folder, err := runs.Read((*in).path())
		if err != nil {
			return nil, err
		}
		return f(folder, in)
	})
}

func (i OnRun) path() string { return i.Run }

type runList struct {
	Runs []api.Run `json:"runs"`
}

// listRuns describes the runs in a folder, newest first, and then those that cannot be read.
func listRuns(folder string) (*output[runList], error) {
	all := runList{Runs: []api.Run{}}
	entries, err := runs.List(folder)
	for _, e := range entries {
		r := api.RunOf(e)
		r.Folder = e.Dir()
		all.Runs = append(all.Runs, r)
	}
	if err == nil {
		return &output[runList]{all}, nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if _, own := err.(*fumehood.Error); own || !ok { //nolint:errorlint // that of the folder is not
		return nil, err
	}
	for _, err := range joined.Unwrap() {
		r := api.Run{State: api.RunUnreadable, Error: new(api.ErrorOf(err))}
		var typed *fumehood.Error
		if errors.As(err, &typed) {
			if inside, ferr := filepath.Rel(folder, typed.Path); ferr == nil && filepath.IsLocal(inside) {
				r.Run, _, _ = strings.Cut(inside, string(filepath.Separator))
				r.Folder = filepath.Join(folder, r.Run)
			}
		}
		all.Runs = append(all.Runs, r)
	}
	return &output[runList]{all}, nil
}

// sendJournal sends the lines of a journal after the first ones, and its end.
func sendJournal(all iter.Seq2[json.RawMessage, error], after, limit int, send func(any) error) {
	n := 0
	for entry, err := range all {
		switch {
		case err != nil:
			_ = send(api.JournalLine{Type: api.EventError, Number: n, Error: new(errorOf(err))})
			return
		case n < after:
		case limit > 0 && n == after+limit:
			_ = send(api.JournalLine{Type: api.EventEnd, Number: n})
			return
		default:
			if send(api.JournalLine{Type: api.EventEntry, Number: n + 1, Entry: entry}) != nil {
				return
			}
		}
		n++
	}
	_ = send(api.JournalLine{Type: api.EventEnd, Number: n})
}

// registerRuns adds the operations of package runs.
func (s *Server) registerRuns() {
	const all = "/v1/runs"
	register(s, op{http.MethodGet, all, "list-runs", "List the runs of evaluations in a folder, newest first, also those of other programs. Those that cannot be read come last", "Evaluations"}, withLease(func(_ context.Context, _ *lease, in *struct {
		Leased
		Folder string `query:"folder" required:"true" minLength:"1" maxLength:"4096" doc:"path of a folder on the server's machine; one that does not exist has no runs"`
	},
	) (*output[runList], error) {
		if err := s.checkRunPath(in.Folder); err != nil {
			return nil, err
		}
		return listRuns(in.Folder)
	}))
	register(s, op{http.MethodGet, all + "/run", "get-run", "Describe a run", "Evaluations"}, onRun(s, func(f *runs.Folder, _ *OnRun) (*output[api.Run], error) {
		e, err := runs.ReadEntry(f.Dir())
		if err != nil {
			return nil, err
		}
		r := api.RunOf(e)
		r.Folder = f.Dir()
		return &output[api.Run]{r}, nil
	}))
	type summaryInput struct {
		OnRun
		PassAt []int  `query:"pass_at" maxItems:"100" doc:"numbers of attempts for pass@k, separated by commas"`
		By     string `query:"by" maxLength:"4096" doc:"what results are grouped by: sample, epoch, outcome or metadata.KEY"`
	}
	register(s, op{http.MethodGet, all + "/summary", "summarize-run", "Summarize the results of a run that are recorded so far, also in groups", "Evaluations"}, onRun(s, func(f *runs.Folder, in *summaryInput) (*output[runs.Summary], error) {
		found, err := f.Summarize(runs.SummaryOptions{PassAt: in.PassAt, By: in.By})
		if err != nil {
			return nil, err
		}
		return &output[runs.Summary]{found}, nil
	}))
	type resultsInput struct {
		OnRun
		From int `query:"from" minimum:"0" doc:"number of results to skip"`
	}
	registerStream(s, op{http.MethodGet, all + "/results", "read-run", "Read the results of a run that are recorded so far. Each line is a result, or the last one an error", "Evaluations"}, typeLines, recorded{}, onRun(s, func(f *runs.Folder, in *resultsInput) (*huma.StreamResponse, error) {
		return resultLines(f, in.From), nil
	}))
	type journalInput struct {
		OnRun
		Sandbox string `query:"sandbox" required:"true" minLength:"1" maxLength:"200" doc:"name of a sandbox, which results have"`
		After   int    `query:"after" minimum:"0" doc:"number of the last line that is already known"`
		Limit   int    `query:"limit" minimum:"0" doc:"largest number of lines; 0 means all"`
	}
	registerStream(s, op{http.MethodGet, all + "/journal", "read-run-journal", "Read the journal of a sandbox of a run, as it is now. The last line is the end", "Evaluations"}, typeLines, api.JournalLine{}, onRun(s, func(f *runs.Folder, in *journalInput) (*huma.StreamResponse, error) {
		return lines(func(send func(any) error) { sendJournal(f.Journal(in.Sandbox), in.After, in.Limit, send) }), nil
	}))
	type exportInput struct {
		OnRun
		Format string `query:"format" required:"true" enum:"csv,json,junit"`
	}
	registerStream(s, op{http.MethodGet, all + "/export", "export-run", "Export the results of a run that are recorded so far", "Evaluations"}, typeBytes, nil, onRun(s, func(f *runs.Folder, in *exportInput) (*huma.StreamResponse, error) {
		if _, err := f.Summary(); err != nil { // it reads all results, so that a broken one is the answer
			return nil, err
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			c.SetHeader("Content-Type", typeBytes)
			if err := f.Export(c.BodyWriter(), in.Format); err != nil {
				s.opts.Logger.Warn("the export of a run broke", "error", err)
				panic(http.ErrAbortHandler) //nolint:forbidigo // as package net/http wants it
			}
		}}, nil
	}))
}
