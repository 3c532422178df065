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

	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
)

// evalOutput prints the output of `fumehood eval`: progress and a summary as text, or events as JSON.
type evalOutput struct {
	app    *commandLine
	people *evalProgress // nil for events
	errw   io.Writer     // for messages after the progress display has stopped

	mu     sync.Mutex // held to write an event
	events *json.Encoder
}

// newEvalOutput starts the output. Until stop is called, the program's messages are printed above the progress line.
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

// stop ends and clears the progress display. It may be called twice.
func (o *evalOutput) stop() {
	if o.people != nil {
		o.people.stop()
		o.app.Err = o.errw
	}
}

// event prints an event. The first is "start". "end" follows the results, unless the run fails or is interrupted. Events
// about kept sandboxes come after it.
func (o *evalOutput) event(e api.EvalEvent) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.events.Encode(e)
}

func (o *evalOutput) printStart(r *runs.Folder, repeated int) error {
	was, err := api.EvalStartedOf(r)
	if err != nil {
		return err
	}
	if was.Repeated = repeated; o.people == nil {
		return o.event(api.EvalEvent{Event: api.EvalStart, EvalStarted: was})
	}
	text := fmt.Sprintf("%s of %s", count(was.Attempts, "attempt"), was.Task)
	if was.Recorded > 0 {
		text += fmt.Sprintf(", %d of them recorded already", was.Recorded)
	}
	if repeated > 0 {
		text += fmt.Sprintf(", %d repeated", repeated)
	}
	_, err = fmt.Fprintf(o.app.Err, "fumehood: %s, in %s\n", text, r.Dir())
	return err
}

// progress reports a change of the counts. It ignores write errors, since result fails with them as well.
func (o *evalOutput) progress(p task.Progress) {
	if o.people == nil {
		_ = o.event(api.EvalEvent{Event: api.EvalProgress, EvalCounts: api.EvalCountsOf(p)})
		return
	}
	o.people.report(p)
}

// stopping prints what the first signal does and what a second one would do.
func (o *evalOutput) stopping() {
	if o.people != nil {
		o.people.stop() // a second signal would leave the progress line behind
		fmt.Fprintln(o.people, "fumehood: stopping; press Ctrl-C again to leave the sandboxes to the reaper")
	}
}

// result reports an attempt. As text, it reports only attempts without a score.
func (o *evalOutput) result(r *task.SampleResult) error {
	if o.people == nil {
		return o.event(api.EvalEvent{Event: api.EvalResult, Result: r})
	}
	if e := r.Error; e != nil && e.Class != task.Canceled {
		fmt.Fprintf(o.people, "fumehood: %s has no score: %s in %s: %s\n", attemptName(r), e.Class, e.Phase, inLines(e.Text))
	}
	return nil
}

func (o *evalOutput) end(dir string, s *runs.Summary) error {
	if o.people == nil {
		return o.event(api.EvalEvent{Event: api.EvalEnd, Summary: s})
	}
	return o.app.printSummary(dir, s)
}

// reportKept reports the sandboxes that are left in place.
func (o *evalOutput) reportKept(all []task.Kept) error {
	if o.people == nil {
		var errs []error
		for _, k := range all {
			key := task.KeyOf(k.Sandbox)
			e := &api.EvalKeeps{Sandbox: k.Sandbox.Name, Sample: key.Sample, Epoch: key.Epoch, Remove: k.Remove}
			for _, s := range k.Services {
				e.Services = append(e.Services, api.KeptService(s))
			}
			errs = append(errs, o.event(api.EvalEvent{Event: api.EvalKept, EvalKeeps: e}))
		}
		return errors.Join(errs...)
	}
	if _, err := io.WriteString(o.app.Out, "\n"); err != nil {
		return outputError(err)
	}
	return task.WriteKept(o.app.Out, all)
}

// onceHandler passes on each message once, except warnings, which always pass. What is news for the first sandbox
// is not for the next ones.
type onceHandler struct {
	slog.Handler              // for warnings, which name their sandbox
	once         slog.Handler // for messages that are logged once
	logged       *sync.Map    // messages logged so far
}

func newOnceHandler(h slog.Handler) *onceHandler { return &onceHandler{h, h, &sync.Map{}} }

// Handle passes a record on. It drops the sandbox's name unless the record is a warning.
func (h *onceHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	if _, logged := h.logged.LoadOrStore(r.Message, true); logged {
		return nil
	}
	record := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "sandbox" {
			record.AddAttrs(a)
		}
		return true
	})
	return h.once.Handle(ctx, record)
}

// WithAttrs returns a handler that adds attributes to each record.
func (h *onceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	common := slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool { return a.Key == "sandbox" })
	return &onceHandler{h.Handler.WithAttrs(attrs), h.once.WithAttrs(common), h.logged}
}

// WithGroup ignores groups, as the handler below does.
func (h *onceHandler) WithGroup(string) slog.Handler { return h }
