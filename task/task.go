// Package task is the life cycle of an evaluation's sandboxes: of a task with samples, each of which is attempted in
// a sandbox of its own, once for each epoch.
//
//	t, err := task.Init(ctx, task.Options{Name: "sums", Provider: p, Spec: spec, Samples: samples})
//	defer t.Close(ctx)
//	sb, err := t.Start(ctx, "one", 1)
//	defer t.End(ctx, sb)
//
// What other frameworks call TaskInit, SampleInit, SampleCleanup and TaskCleanup are Init, Task.Start, Task.End and
// Task.Close. Run does all that for a whole evaluation: many samples at once, each solved and scored by functions. It
// knows fumehood.Provider, and no container engine. Every error is a *fumehood.Error.
package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/spec"
)

// DefaultSetupTimeout is how long a set-up script may take where Options does not say.
const DefaultSetupTimeout = 5 * time.Minute

// Options say what a task is. Name, Provider and Samples are needed.
type Options struct {
	// Name is the task's. What of it can be in a sandbox's name is: "fumehood-", the name, and 12 random characters.
	Name string
	// Provider makes the sandboxes. It stays the caller's to close, after the task.
	Provider fumehood.Provider
	// Spec is that of the samples that have none of their own. Its Name and Keep, and the labels LabelTask, LabelSample and LabelEpoch, are the task's to set.
	Spec    fumehood.Spec
	Samples []Sample
	// SetupTimeout bounds each set-up script. 0 means DefaultSetupTimeout.
	SetupTimeout time.Duration
	// Exclude returns the files and folders of this machine that no image of these samples is built of, wherever the context
	// of the build has them: what tells how samples are judged, what only others are given, results of earlier runs. They
	// are absolute, symbolic links resolved. Nil excludes nothing.
	Exclude func(samples []string) []string
	// Keep leaves all sandboxes in place, also those whose set-up has failed.
	Keep bool
	// Kept is told, when the task is closed, of all that were left in place, in the order of samples and epochs. Nil
	// tells nobody.
	Kept func(all []Kept)
	// Journal returns where the journal of a sandbox goes that is about to be started, or that was started ahead (see Run)
	// and is about to be used; then the lines of its start name no sample. It is closed when the sandbox is removed. Nil
	// leaves that to the specs.
	Journal func(sandbox string, of Key) (io.WriteCloser, error)
	// Removed is told of each sandbox that was removed, or could not be. It is called from several goroutines at
	// once. Nil tells nobody.
	Removed func(Removal)
	// Logger logs what is prepared, what a clean-up has to do and, in place of the provider's, what loosens the isolation
	// of sandboxes. Nil leaves the last to the provider's and logs nothing else.
	Logger *slog.Logger
}

// Sample is one sample of a task.
type Sample struct {
	ID string // unique in the task
	// Metadata is what Compose files see as SAMPLE_METADATA_KEY, for which see spec.MetadataEnv.
	Metadata map[string]string
	// Spec is what the sample's sandboxes are. Nil means the task's.
	Spec *fumehood.Spec
	// Files are put into the sandbox before its set-up. A key is a path in the default service, or "SERVICE:PATH"; a
	// relative path is below the service's directory. A path with a colon in its first element needs the SERVICE, or
	// a "./" before it. Files belong to the service's user, and have mode 0644.
	Files map[string]Content
	// Setup is a script that is run in the default service before Start returns: by the program that its first line
	// names with #!, else by sh. Nothing means none.
	Setup Content
	// Others are the sandboxes that solvers and scorers start besides, by Attempt.Beside: Init has the provider pull and
	// build what these need, too.
	Others []fumehood.Spec
}

// Removal tells of a sandbox that was to be removed.
type Removal struct {
	Sandbox fumehood.Info
	Left    int   // how many the task has besides
	Err     error // why it could not be removed
}

// Task is a task that was initialised. Its methods may be called by many goroutines at once. Close it.
type Task struct {
	opts    Options
	log     *slog.Logger
	samples map[string]*Sample
	groups  map[sandboxOf]*group // nil until all is prepared

	mu       sync.Mutex
	closed   bool
	starting map[*start]struct{}
	starts   sync.WaitGroup // as many as there are in starting
	live     map[fumehood.Sandbox]*attempt
	kept     []Kept
}

// start is a Start under way, which Close ends.
type start struct{ cancel context.CancelCauseFunc }

// attempt is a sandbox that the task holds.
type attempt struct {
	keep    bool       // it is left in place
	ending  sync.Mutex // held while it is being removed
	ended   bool
	journal io.Closer    // nil where it is not the task's
	late    *lateJournal // that of a sandbox that was started ahead; nil for others
}

// Init checks the task as a whole, and has the provider pull and build what any sample needs, once for all samples
// that need the same. It starts no sandbox. What is wrong with the task is an ErrConfig that tells all of it.
func Init(ctx context.Context, opts Options) (*Task, error) {
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if opts.Kept == nil {
		opts.Kept = func([]Kept) {}
	}
	if opts.Exclude == nil {
		opts.Exclude = func([]string) []string { return nil }
	}
	if opts.Removed == nil {
		opts.Removed = func(Removal) {}
	}
	if opts.SetupTimeout == 0 {
		opts.SetupTimeout = DefaultSetupTimeout
	}
	t := &Task{
		opts: opts, log: log, samples: map[string]*Sample{},
		starting: map[*start]struct{}{}, live: map[fumehood.Sandbox]*attempt{},
	}
	op := "initialise task " + opts.Name
	if err := t.check(); err != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	if err := t.prepare(ctx); err != nil {
		return nil, failed(ctx, op, err)
	}
	return t, nil
}

// failed says what was being done when err came, which decides about the class. Trouble with what was done about it
// is told with it.
func failed(ctx context.Context, op string, err error, trouble ...error) error {
	class := fumehood.ClassOf(err)
	switch {
	case class != nil:
	case ctx.Err() != nil:
		class = fumehood.ErrCancelled
	default:
		class = fumehood.ErrInfrastructure
	}
	if t := errors.Join(trouble...); t != nil {
		err = fmt.Errorf("%w\nand then: %s", err, t.Error())
	}
	return &fumehood.Error{Op: op, Class: class, Err: err}
}

// mostProblems is how many samples' faults are told at once.
const mostProblems = 20

// check finds what is wrong with the task.
func (t *Task) check() error {
	switch {
	case t.opts.Name == "":
		return errors.New("it has no name")
	case len(t.opts.Name) > fumehood.MaxLabel:
		return fmt.Errorf("its name has %d bytes, and %d are the limit", len(t.opts.Name), fumehood.MaxLabel)
	case t.opts.Provider == nil:
		return errors.New("it has no provider")
	case len(t.opts.Samples) == 0:
		return errors.New("it has no samples")
	case t.opts.SetupTimeout < 0:
		return fmt.Errorf("the limit of set-ups %v is negative", t.opts.SetupTimeout)
	}
	var errs []error
	for i := range t.opts.Samples {
		s := &t.opts.Samples[i]
		if err := t.checkSample(s); err != nil {
			errs = append(errs, fmt.Errorf("sample %q: %w", s.ID, err))
		}
		if len(errs) == mostProblems {
			errs = append(errs, errors.New("there may be more"))
			break
		}
		t.samples[s.ID] = s
	}
	return errors.Join(errs...)
}

func (t *Task) checkSample(s *Sample) error {
	if s.ID == "" {
		return errors.New("it has no id")
	}
	if len(s.ID) > fumehood.MaxLabel {
		return fmt.Errorf("its id has %d bytes, and %d are the limit", len(s.ID), fumehood.MaxLabel)
	}
	if t.samples[s.ID] != nil {
		return errors.New("there are two of that id")
	}
	what, err := t.spec(s, 1)
	if err != nil {
		return err
	}
	if err := what.Validate(); err != nil {
		return err
	}
	for _, other := range s.Others {
		if !unset(other) {
			return errNotUnset
		}
		if err := other.Validate(); err != nil {
			return err
		}
	}
	for key, content := range s.Files {
		if _, _, err := target(key); err != nil {
			return err
		}
		if err := content.check(); err != nil {
			return fmt.Errorf("file %q: %w", key, err)
		}
	}
	if err := s.Setup.check(); err != nil {
		return fmt.Errorf("set-up: %w", err)
	}
	return nil
}

// spec is that of an attempt at a sample, but for name and journal.
func (t *Task) spec(s *Sample, epoch int) (fumehood.Spec, error) {
	what := t.opts.Spec
	if s.Spec != nil {
		what = *s.Spec
	}
	if !unset(what) {
		return what, errNotUnset
	}
	if images := t.images(sandboxOf{s.ID, own}); images != nil {
		what.Images = images
	}
	what.Labels = t.labels(what.Labels, Key{s.ID, epoch})
	what.Keep = t.opts.Keep
	env, err := spec.MetadataEnv(s.Metadata)
	if err != nil || what.Compose == nil || len(env) == 0 {
		return what, err
	}
	c := *what.Compose
	c.Env = maps.Clone(c.Env)
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	maps.Copy(c.Env, env)
	what.Compose = &c
	return what, nil
}

// unset reports whether nothing of a spec is set that is the task's to set.
func unset(what fumehood.Spec) bool {
	for _, label := range []string{LabelTask, LabelSample, LabelEpoch} {
		if _, is := what.Labels[label]; is {
			return false
		}
	}
	return what.Name == "" && !what.Keep
}

var errNotUnset = errors.New("its spec has a Name, a Keep, or a label task, sample or epoch, which are the task's to set")

// target splits the key of a file into service and path; an empty service is the default one.
func target(key string) (service, path string, err error) {
	service, path, ok := strings.Cut(key, ":")
	if !ok || strings.Contains(service, "/") {
		service, path = "", key
	} else if service == "" {
		return "", "", fmt.Errorf("file %q has a colon, and no service before it", key)
	}
	if path == "" || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return "", "", fmt.Errorf("file %q has no path of a file", key)
	}
	return service, path, nil
}
