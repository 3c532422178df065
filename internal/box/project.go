package box

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
	"github.com/fumehood/fumehood/provider"
)

// LoadProject loads the Compose project of a spec. The spec needs no name if only the images are prepared. With a recorder,
// the journal shows no value of the project's variables.
func LoadProject(ctx context.Context, spec fumehood.Spec, rec *provider.Recorder) (*compose.Project, error) {
	project, err := compose.Load(ctx, cmp.Or(spec.Name, "fumehood-prepared"), *spec.Compose)
	var hidden []map[string]string
	if failure, ok := errors.AsType[*compose.LoadError](err); ok {
		hidden = append(hidden, failure.Variables)
	}
	if err == nil {
		hidden = project.Variables()
	}
	for _, env := range hidden {
		if rec != nil {
			rec.Hide(env)
		}
	}
	return project, err
}

// LoggerOf returns the logger for what weakens a sandbox's isolation.
func (l *Life) LoggerOf(spec fumehood.Spec) *slog.Logger { return cmp.Or(spec.Logger, l.Log) }

// LogFiles logs the warnings about a project's files, and the variables that they use although they are not set, each
// place once for each logger.
func (l *Life) LogFiles(spec fumehood.Spec, project *compose.Project) {
	log := l.LoggerOf(spec)
	for _, w := range project.Warnings() {
		if _, logged := l.logged.LoadOrStore([3]any{log, w.Key, w.At}, true); !logged {
			log.Warn(w.Reason, "key", w.Key, "at", w.At)
		}
	}
	for _, u := range project.Unset() {
		if _, logged := l.logged.LoadOrStore([3]any{log, u.Name, u.At}, true); !logged {
			log.Warn("a variable is not set, and so empty in the Compose file; "+compose.OnlyNamed, "variable", u.Name, "at", u.At)
		}
	}
}

// BrokenIsolation is the log message for unsafe settings that the user allows.
const BrokenIsolation = "the isolation is broken, as the run allows"

// LogChanges logs the unsafe settings of a project that the user allows.
func (l *Life) LogChanges(spec fumehood.Spec, changes []compose.Change) {
	for _, c := range changes {
		if c.Unsafe {
			l.LoggerOf(spec).Warn(BrokenIsolation, "sandbox", spec.Name, "service", c.Service, "key", c.Key, "value", c.To, "reason", c.Reason)
		}
	}
}
