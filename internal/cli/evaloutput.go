package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/fumehood/fumehood/runs"
	"github.com/fumehood/fumehood/task"
)

// evalOutput is what `fumehood eval` prints: a summary for people and how far it is meanwhile, or events.
type evalOutput struct {
	app    *commandLine
	people *evalProgress // nil for events
	errw   io.Writer     // where messages go when there is no progress to be told any more

	mu     sync.Mutex // held to write an event
	events *json.Encoder
}

// newEvalOutput has the program's messages go around the progress, until stop is called.
func (a *commandLine) newEvalOutput(asJSON bool) *evalOutput {
	o := &evalOutput{app: a, errw: a.Err}
	if asJSON {
		a.log = slog.New(newOnceHandler(a.logHandler()))
		o.events = json.NewEncoder(forPeople(a.Out))
		o.events.SetEscapeHTML(false)
		return o
	}
	o.people = newEvalProgress(a.Err)
	a.Err = o.people
	a.log = slog.New(newOnceHandler(a.logHandler()))
	return o
}

// stop takes the progress away. It may be called twice.
func (o *evalOutput) stop() {
	if o.people != nil {
		o.people.stop()
		o.app.Err = o.errw
	}
}

// The events, each a line. The first is "start", the last "end", unless the run fails or is ended; after it come those
// about sandboxes that are kept.
type (
	startEvent struct {
		Event    string `json:"event"` // "start"
		Run      string `json:"run"`   // the run's folder
		Task     string `json:"task"`
		Attempts int    `json:"attempts"` // in all
		Recorded int    `json:"recorded"` // that the run has already
	}
	progressEvent struct {
		Event    string `json:"event"` // "progress"
		Total    int    `json:"total"` // attempts that this process makes
		Queued   int    `json:"queued"`
		Starting int    `json:"starting"`
		Running  int    `json:"running"`
		Passed   int    `json:"passed"`
		Failed   int    `json:"failed"`
		Errors   int    `json:"errors"`
	}
	resultEvent struct {
		Event  string             `json:"event"` // "result"
		Result *task.SampleResult `json:"result"`
	}
	keptEvent struct {
		Event    string        `json:"event"` // "kept"
		Sandbox  string        `json:"sandbox"`
		Sample   string        `json:"sample"`
		Epoch    int           `json:"epoch"`
		Services []keptService `json:"services"`
		Remove   []string      `json:"remove"` // the command that removes it
	}
	keptService struct {
		Container string   `json:"container,omitempty"`
		Enter     []string `json:"enter,omitempty"` // the command that opens a shell in it
	}
	endEvent struct {
		Event   string        `json:"event"` // "end"
		Summary *runs.Summary `json:"summary"`
	}
)

func (o *evalOutput) event(e any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.events.Encode(e)
}

func (o *evalOutput) start(r *runs.Folder) error {
	was, err := r.Summary()
	if err != nil {
		return err
	}
	if o.people == nil {
		return o.event(startEvent{"start", r.Dir(), was.Task, was.Attempts, was.Recorded})
	}
	text := fmt.Sprintf("%s of %s", count(was.Attempts, "attempt"), was.Task)
	if was.Recorded > 0 {
		text += fmt.Sprintf(", %d of them recorded already", was.Recorded)
	}
	_, err = fmt.Fprintf(o.app.Err, "fumehood: %s, in %s\n", text, r.Dir())
	return err
}

// progress tells of each change of the counts. What cannot be written is left to result, which fails then.
func (o *evalOutput) progress(p task.Progress) {
	if o.people == nil {
		_ = o.event(progressEvent{"progress", p.Total, p.Queued, p.Starting, p.Running, p.Passed, p.Failed, p.Errors})
		return
	}
	o.people.report(p)
}

// stopping says what a signal does.
func (o *evalOutput) stopping() {
	if o.people != nil {
		o.people.stop() // a second signal would leave its line as it is
		fmt.Fprintln(o.people, "fumehood: ending what runs; Ctrl-C again leaves its sandboxes to the reaper")
	}
}

// result tells of an attempt: people only of one without a score.
func (o *evalOutput) result(r *task.SampleResult) error {
	if o.people == nil {
		return o.event(resultEvent{"result", r})
	}
	if e := r.Error; e != nil && e.Class != task.Cancelled {
		fmt.Fprintf(o.people, "fumehood: %s has no score: %s in %s: %s\n", attemptName(r), e.Class, e.Phase, inLines(e.Text))
	}
	return nil
}

func (o *evalOutput) end(dir string, s *runs.Summary) error {
	if o.people == nil {
		return o.event(endEvent{"end", s})
	}
	return o.app.printSummary(dir, s)
}

// kept tells of the sandboxes that are left in place.
func (o *evalOutput) kept(all []task.Kept) error {
	if o.people == nil {
		var errs []error
		for _, k := range all {
			of := task.KeyOf(k.Sandbox)
			e := keptEvent{Event: "kept", Sandbox: k.Sandbox.Name, Sample: of.Sample, Epoch: of.Epoch, Remove: k.Remove}
			for _, s := range k.Services {
				e.Services = append(e.Services, keptService(s))
			}
			errs = append(errs, o.event(e))
		}
		return errors.Join(errs...)
	}
	if _, err := io.WriteString(o.app.Out, "\n"); err != nil {
		return outputError(err)
	}
	return task.WriteKept(o.app.Out, all)
}

// onceHandler passes on each text of a record once, but for warnings: what is worth knowing of one sandbox is no news of
// the next.
type onceHandler struct {
	slog.Handler              // of warnings, which name their sandbox
	once         slog.Handler // of what is said once
	said         *sync.Map    // texts
}

func newOnceHandler(h slog.Handler) *onceHandler { return &onceHandler{h, h, &sync.Map{}} }

// Handle passes a record on, without the name of the sandbox that was the first.
func (h *onceHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	if _, said := h.said.LoadOrStore(r.Message, true); said {
		return nil
	}
	of := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "sandbox" {
			of.AddAttrs(a)
		}
		return true
	})
	return h.once.Handle(ctx, of)
}

// WithAttrs returns a handler that adds attributes to each record.
func (h *onceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	common := slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool { return a.Key == "sandbox" })
	return &onceHandler{h.Handler.WithAttrs(attrs), h.once.WithAttrs(common), h.said}
}

// WithGroup ignores groups, as the handler below does.
func (h *onceHandler) WithGroup(string) slog.Handler { return h }
