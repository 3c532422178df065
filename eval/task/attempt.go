package task

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/journal"
	"github.com/fumehood/fumehood/provider"
)

// Start starts the sandbox of an attempt at a sample, writes the sample's files and runs its setup script. It is
// all or nothing: on an error the sandbox is removed, unless it is to be kept. A failed script is in the error as a
// *SetupError. Epochs start at 1. The same attempt may be started again, in another sandbox.
func (t *Task) Start(ctx context.Context, sample string, epoch int) (_ fumehood.Sandbox, err error) {
	op := fmt.Sprintf("start sample %q, epoch %d", sample, epoch)
	s := t.samples[sample]
	switch {
	case s == nil:
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: fmt.Errorf("task %s has no such sample", t.opts.Name)}
	case epoch < 1:
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: errors.New("epochs start at 1")}
	}
	ctx, over, err := t.begin(ctx)
	if err != nil {
		return nil, opError(ctx, op, err)
	}
	defer over()
	spec, err := t.spec(s, epoch)
	if err != nil {
		return nil, opError(ctx, op, err)
	}
	sb, err := t.launch(ctx, op, spec)
	if err != nil {
		return nil, err
	}
	if err := t.setUpSandbox(ctx, sb, s); err != nil {
		return nil, opError(ctx, op, err, t.End(ctx, sb))
	}
	return sb, nil
}

// launch starts a sandbox and registers it.
func (t *Task) launch(ctx context.Context, op string, spec fumehood.Spec) (fumehood.Sandbox, error) {
	spec.Name = "fumehood-" + slug(t.opts.Name) + "-" + strings.ToLower(rand.Text()[:12])
	spec.Logger = cmp.Or(spec.Logger, t.opts.Logger)
	a := &attempt{keep: spec.Keep}
	if t.opts.Journal != nil {
		w, err := t.opts.Journal(spec.Name)
		if err != nil {
			return nil, opError(ctx, op, fmt.Errorf("open the journal: %w", err))
		}
		a.journal, spec.Journal = w, journal.New(w, t.log).Logger
	}
	sb, err := t.opts.Provider.Start(ctx, spec)
	if err != nil {
		return nil, opError(ctx, op, provider.Redact(err, &spec), a.closeJournal()) // results store the error
	}
	t.mu.Lock()
	t.live[sb] = a
	t.mu.Unlock()
	return sb, nil
}

// assign assigns a sandbox that was started ahead to an attempt. It removes the sandbox if that fails.
func (t *Task) assign(ctx context.Context, sb fumehood.Sandbox, key Key) (fumehood.Sandbox, error) {
	if err := sb.Assign(t.labels(sb.Info().Labels, key)); err != nil {
		return nil, opError(ctx, "assign a sandbox", err, t.End(ctx, sb))
	}
	return sb, nil
}

// begin registers a start. Its context ends with the task's.
func (t *Task) begin(ctx context.Context) (_ context.Context, over func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ctx, nil, &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errClosed}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &start{cancel}
	t.starting[s] = struct{}{}
	t.starts.Add(1)
	return ctx, func() {
		cancel(nil)
		t.mu.Lock()
		delete(t.starting, s)
		t.mu.Unlock()
		t.starts.Done()
	}, nil
}

// errClosed has no class, because it is also the cause of canceled starts.
var errClosed = errors.New("the task is closed")

var notInName = regexp.MustCompile(`[^A-Za-z0-9]+`)

// slug returns the part of a task's name that is valid in a sandbox's name.
func slug(name string) string {
	name = strings.ToLower(notInName.ReplaceAllString(name, "-"))
	const longest = 40 // of the 63 characters of a sandbox's name
	return cmp.Or(strings.Trim(name[:min(longest, len(name))], "-"), "task")
}

// setUpSandbox writes the sample's files to a started sandbox and runs the setup script.
func (t *Task) setUpSandbox(ctx context.Context, sb fumehood.Sandbox, s *Sample) error {
	end := sb.Phase("files")
	err := putFiles(ctx, sb, s.Files)
	end(err)
	if err != nil || s.Setup.isZero() {
		return err
	}
	end = sb.Phase("set-up")
	err = setUp(ctx, sb, s.Setup, t.opts.SetupTimeout)
	end(err)
	return err
}

func putFiles(ctx context.Context, sb fumehood.Sandbox, files map[string]Content) error {
	for _, key := range slices.Sorted(maps.Keys(files)) {
		if err := putFile(ctx, sb, key, files[key]); err != nil {
			return err
		}
	}
	return nil
}

func putFile(ctx context.Context, sb fumehood.Sandbox, key string, content Content) error {
	service, path, err := target(key)
	if err != nil {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: err}
	}
	var svc fumehood.Service = sb
	if service != "" {
		if svc, err = sb.Lookup(service); err != nil {
			return fmt.Errorf("file %q: %w", key, err)
		}
	}
	r, size, err := content.Open()
	if err != nil {
		return &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("file %q: %w", key, err)}
	}
	defer r.Close()
	return svc.WriteFrom(ctx, path, r, size, fumehood.WriteOptions{})
}

// End removes the sandbox of an attempt, or lists it as kept. It continues after cancellation of ctx. It may be
// called again: after a success it does nothing, after an error it retries, as Close does.
func (t *Task) End(ctx context.Context, sb fumehood.Sandbox) error {
	t.mu.Lock()
	a := t.live[sb]
	t.mu.Unlock()
	if a == nil {
		return nil
	}
	return t.endAttempt(ctx, sb, a)
}

func (t *Task) endAttempt(ctx context.Context, sb fumehood.Sandbox, a *attempt) error {
	ctx = context.WithoutCancel(ctx)
	a.ending.Lock()
	defer a.ending.Unlock()
	if a.ended {
		return nil
	}
	var kept Kept
	if a.keep {
		kept = describeKept(ctx, sb)
	}
	err := sb.Close(ctx)
	t.mu.Lock()
	if err == nil {
		a.ended = true
		delete(t.live, sb)
		if a.keep {
			t.kept = append(t.kept, kept)
		}
	}
	left := len(t.live)
	t.mu.Unlock()
	if err == nil {
		err = a.closeJournal()
	}
	if !a.keep {
		t.opts.Removed(Removal{Sandbox: sb.Info(), Left: left, Err: err})
	}
	return err
}

func (a *attempt) closeJournal() error {
	if a.journal == nil {
		return nil
	}
	if err := a.journal.Close(); err != nil {
		return &fumehood.Error{Op: "close the journal", Class: fumehood.ErrInfrastructure, Err: err}
	}
	return nil
}

// removals is how many sandboxes are removed concurrently: a daemon does little in parallel.
const removals = 8

// Close cancels starts in progress and removes all remaining sandboxes of the task, or lists them as kept. It
// continues after cancellation of ctx. It logs how many sandboxes it is going to remove, and calls Removed for each.
// It may be called again to retry sandboxes that could not be removed; the error names them.
func (t *Task) Close(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	for s := range t.starting {
		s.cancel(errClosed)
	}
	t.mu.Unlock()
	t.starts.Wait()
	t.mu.Lock()
	live := maps.Clone(t.live)
	t.mu.Unlock()
	defer t.tellKept()
	if len(live) == 0 {
		return nil
	}
	if !t.opts.Keep {
		t.log.Info("removing the remaining sandboxes", "task", t.opts.Name, "sandboxes", len(live))
	}
	var removing errgroup.Group
	removing.SetLimit(removals)
	ended := make(chan error, len(live))
	for sb, a := range live {
		removing.Go(func() error {
			ended <- t.endAttempt(ctx, sb, a)
			return nil
		})
	}
	var errs []error
	for range live {
		errs = append(errs, <-ended)
	}
	if err := errors.Join(errs...); err != nil {
		return opError(ctx, "close task "+t.opts.Name, err)
	}
	return nil
}
