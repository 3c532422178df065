// Package task manages the life cycle of an evaluation's sandboxes. A task has samples. Each sample is attempted
// once per epoch, each time in its own sandbox.
//
//	t, err := task.Init(ctx, task.Options{Name: "sums", Provider: p, Spec: spec, Samples: samples})
//	defer t.Close(ctx)
//	sb, err := t.Start(ctx, "one", 1)
//	defer t.End(ctx, sb)
//
// Init, Task.Start, Task.End and Task.Close correspond to TaskInit, SampleInit, SampleCleanup and TaskCleanup in
// other frameworks. Run does all of that for a whole evaluation: it solves and scores many samples concurrently
// with given functions. The package depends on fumehood.Provider, not on a container engine. Every error is a
// *fumehood.Error.
package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/alike"
	"github.com/fumehood/fumehood/session/spec"
)

// DefaultSetupTimeout is the default time limit of a setup script.
const DefaultSetupTimeout = 5 * time.Minute

// Options describe a task. Name, Provider and Samples are required.
type Options struct {
	// Name is the name of the task. The valid part of it is in the names of its sandboxes: "fumehood-", the name,
	// and 12 random characters.
	Name string
	// Provider starts the sandboxes. The caller closes it, after the task.
	Provider fumehood.Provider
	// Spec is the spec of samples that have none. Its Name and Keep, and the labels LabelTask, LabelSample and
	// LabelEpoch, must not be set: the task sets them.
	Spec    fumehood.Spec
	Samples []Sample
	// SetupTimeout limits each setup script. 0 means DefaultSetupTimeout.
	SetupTimeout time.Duration
	// Exclude returns files and folders of this machine that must not be in the build contexts of these samples'
	// images: grading data, files for other samples, results of earlier runs. Paths are absolute, with symbolic
	// links resolved. Nil excludes nothing.
	Exclude func(samples []string) []string
	// Keep leaves all sandboxes in place, including those whose setup failed.
	Keep bool
	// Kept is called when the task is closed, with all sandboxes left in place, ordered by sample and epoch. Nil
	// disables the report.
	Kept func(all []Kept)
	// Journal opens the journal of a sandbox before it starts. The lines of a start ahead (see Run) name no sample. The
	// journal is closed when the sandbox is removed. If nil, the journals of the specs are used.
	Journal func(sandbox string) (io.WriteCloser, error)
	// Removed is called for each sandbox that was removed, or could not be. It is called from several goroutines
	// concurrently. Nil disables the report.
	Removed func(Removal)
	// Logger logs the preparation and the cleanup. It also logs settings that weaken isolation, in place of the
	// provider's logger. If nil, the provider's logger logs those settings, and the rest is not logged.
	Logger *slog.Logger
}

// Sample is one sample of a task.
type Sample struct {
	ID string // unique in the task
	// Metadata is visible to Compose files as SAMPLE_METADATA_KEY, see spec.MetadataEnv.
	Metadata map[string]string
	// Spec is the spec of the sample's sandboxes. Nil means the task's.
	Spec *fumehood.Spec
	// Files are written to the sandbox before its setup. A key is a path in the default service, or "SERVICE:PATH".
	// A relative path is resolved against the service's directory. A path with a colon in its first element needs
	// the SERVICE, or "./" before it. Files belong to the service's user and have mode 0644.
	Files map[string]Content
	// Setup is a script that runs in the default service before Start returns. It is run by the program named in
	// its #! line, or by sh. If empty, there is no setup.
	Setup Content
	// Others are the additional sandboxes that solvers and scorers start with Attempt.Beside. Init also pulls and
	// builds their images.
	Others []fumehood.Spec
}

// Removal describes the removal of a sandbox.
type Removal struct {
	Sandbox fumehood.Info
	Left    int   // number of remaining sandboxes of the task
	Err     error // why it could not be removed
}

// Task is an initialized task. Its methods may be called by multiple goroutines concurrently. It must be closed.
type Task struct {
	opts    Options
	log     *slog.Logger
	samples map[string]*Sample
	groups  map[sandboxOf]*group // nil until prepared

	mu       sync.Mutex
	closed   bool
	starting map[*start]struct{}
	starts   sync.WaitGroup // counts the elements of starting
	live     map[fumehood.Sandbox]*attempt
	kept     []Kept
}

// start is a Start in progress, which Close cancels.
type start struct{ cancel context.CancelCauseFunc }

// attempt is a sandbox held by the task.
type attempt struct {
	keep    bool       // leave it in place
	ending  sync.Mutex // held during the removal
	ended   bool
	journal io.Closer // nil if the task does not manage it
}

// Init validates the whole task, and lets the provider pull and build the images of all samples, once for samples
// that need the same images. It starts no sandbox. An invalid task is an ErrConfig that lists all errors.
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
	op := "initialize task " + opts.Name
	if err := t.check(); err != nil {
		return nil, &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	if err := t.prepare(ctx); err != nil {
		return nil, opError(ctx, op, err)
	}
	return t, nil
}

// opError adds the operation and a class to err. It appends errors of the cleanup after err.
func opError(ctx context.Context, op string, err error, trouble ...error) error {
	class := fumehood.ClassOf(err)
	switch {
	case class != nil:
	case ctx.Err() != nil:
		class = fumehood.ErrCanceled
	default:
		class = fumehood.ErrInfrastructure
	}
	if t := errors.Join(trouble...); t != nil {
		err = fmt.Errorf("%w\nand then: %s", err, t.Error())
	}
	return &fumehood.Error{Op: op, Class: class, Err: err}
}

// check validates the task.
func (t *Task) check() error {
	switch {
	case t.opts.Name == "":
		return errors.New("it has no name")
	case len(t.opts.Name) > fumehood.MaxLabel:
		return fmt.Errorf("its name has %d bytes, more than the limit of %d", len(t.opts.Name), fumehood.MaxLabel)
	case t.opts.Provider == nil:
		return errors.New("it has no provider")
	case len(t.opts.Samples) == 0:
		return errors.New("it has no samples")
	case t.opts.SetupTimeout < 0:
		return fmt.Errorf("the setup timeout %v is negative", t.opts.SetupTimeout)
	}
	var errs alike.Errors
	for i := range t.opts.Samples {
		s := &t.opts.Samples[i]
		t.checkSample(s, func(err error) {
			if err != nil {
				errs.Add(fmt.Sprintf("sample %q", s.ID), err, fmt.Errorf("sample %q: %w", s.ID, err))
			}
		})
		t.samples[s.ID] = s
	}
	return errs.Join()
}

// checkSample calls bad with each problem of a sample, or with nil.
func (t *Task) checkSample(s *Sample, bad func(error)) {
	if s.ID == "" {
		bad(errors.New("it has no id"))
	}
	if len(s.ID) > fumehood.MaxLabel {
		bad(fmt.Errorf("its id has %d bytes, more than the limit of %d", len(s.ID), fumehood.MaxLabel))
	}
	if !utf8.ValidString(s.ID) { // in a record it could not be told from another
		bad(fmt.Errorf("its id %q is not UTF-8", s.ID))
	}
	if t.samples[s.ID] != nil {
		bad(errors.New("duplicate id"))
	}
	spec, err := t.spec(s, 1)
	if err == nil {
		err = spec.Validate()
	}
	bad(err)
	for _, other := range s.Others {
		if !unset(other) {
			bad(errNotUnset)
		}
		bad(other.Validate())
	}
	for _, key := range slices.Sorted(maps.Keys(s.Files)) {
		_, _, err := target(key)
		bad(err)
		if err := s.Files[key].check(); err != nil {
			bad(fmt.Errorf("file %q: %w", key, err))
		}
	}
	if err := s.Setup.check(); err != nil {
		bad(fmt.Errorf("setup: %w", err))
	}
}

// spec returns the spec of an attempt at a sample, without name and journal.
func (t *Task) spec(s *Sample, epoch int) (fumehood.Spec, error) {
	sandboxSpec := t.opts.Spec
	if s.Spec != nil {
		sandboxSpec = *s.Spec
	}
	if !unset(sandboxSpec) {
		return sandboxSpec, errNotUnset
	}
	if images := t.images(sandboxOf{s.ID, own}); images != nil {
		sandboxSpec.Images = images
	}
	sandboxSpec.Labels = t.labels(sandboxSpec.Labels, Key{s.ID, epoch})
	sandboxSpec.Keep = t.opts.Keep
	return spec.WithMetadata(sandboxSpec, s.Metadata)
}

// unset reports whether a spec leaves unset what the task sets.
func unset(spec fumehood.Spec) bool {
	for _, label := range []string{LabelTask, LabelSample, LabelEpoch} {
		if _, is := spec.Labels[label]; is {
			return false
		}
	}
	return spec.Name == "" && !spec.Keep
}

var errNotUnset = errors.New("its spec sets Name, Keep, or a label task, sample or epoch, which only the task may set")

// target splits the key of a file into service and path; an empty service means the default one.
func target(key string) (service, path string, err error) {
	service, path, ok := strings.Cut(key, ":")
	if !ok || strings.Contains(service, "/") {
		service, path = "", key
	} else if service == "" {
		return "", "", fmt.Errorf("file %q has no service before the colon", key)
	}
	if path == "" || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) {
		return "", "", fmt.Errorf("file %q does not name a file", key)
	}
	return service, path, nil
}
