package taskfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/spec"
)

// checkData returns an error for what a row of data, which may be others', may not decide: who runs, on which network, with
// what of this machine, and for how long.
func (s *Sample) checkData(defaults *Defaults) error {
	var set []string
	note := func(key string, is bool) {
		if is {
			set = append(set, key)
		}
	}
	environment := func(of string, e *Environment) {
		if e == nil {
			return
		}
		note(of+"environment.file", e.File != "")
		note(of+"environment.compose", len(e.Compose) > 0)
		note(of+"environment.dockerfile", e.Dockerfile != "")
		note(of+"environment.network", e.Network != "" && e.Network != fumehood.NetworkNone)
		note(of+"environment.runtime", e.Runtime != "")
		note(of+"environment.user", e.User != "")
	}
	environment("", s.Environment)
	for i, st := range s.Steps {
		note(fmt.Sprintf("steps[%d].user", i), st.User != "")
		note(fmt.Sprintf("steps[%d].timeout of none", i), st.Timeout == fumehood.NoLimit)
		note(fmt.Sprintf("steps[%d].cpu_time of none", i), st.CPUTime == fumehood.NoLimit)
	}
	note("timeout of none", s.Timeout == fumehood.NoLimit)
	note("cpu_time of none", s.CPUTime == fumehood.NoLimit)
	var errs []error
	if g := s.Grader; g != nil {
		environment("grader.", g.Environment)
		note("grader.user", g.User != "")
		note("grader.timeout of none", g.Timeout == fumehood.NoLimit)
		var graders fumehood.Limits
		if defaults.Grader != nil {
			graders = fumehood.Limits(defaults.Grader.Limits)
		}
		errs = append(errs, above("grader.limits", g.Limits, graders))
	}
	for _, key := range set {
		errs = append(errs, fmt.Errorf("%s is not for a row of data to set", key))
	}
	return errors.Join(errs...)
}

// above returns an error for limits of a row above those that the task, with its environment, has.
func above(key string, row spec.Limits, most fumehood.Limits) error {
	var errs []error
	say := func(name string, is bool) {
		if is {
			errs = append(errs, fmt.Errorf("%s.%s is above that of the task, which is not for a row of data to set", key, name))
		}
	}
	most = most.WithDefaults()
	say("memory", exceeds(row.Memory, most.Memory))
	say("cpus", exceeds(row.CPUs, most.CPUs))
	say("pids", exceeds(row.PIDs, most.PIDs))
	return errors.Join(errs...)
}

// exceeds reports whether a limit is above another. Fumehood.NoLimit is above all others; 0 says nothing.
func exceeds[T cmp.Ordered](limit, most T) bool {
	var zero T
	return limit != zero && most >= zero && (limit < zero || limit > most)
}

// overTask makes the environments of a row of data, and of its grader, those of the task with what the row says in them: a row
// that names another image keeps the task's runtime, user and network.
func (s *Sample) overTask(defaults *Defaults) (err error) {
	of := defaults.Environment
	if s.Environment, err = s.Environment.over(of); err != nil || s.Grader == nil {
		return err
	}
	if defaults.Grader != nil && defaults.Grader.Environment != nil {
		of = defaults.Grader.Environment
	}
	if s.Grader.Environment, err = s.Grader.Environment.over(of); err != nil {
		return fmt.Errorf("grader: %w", err)
	}
	return nil
}

// over returns an environment of data over the task's; nil where it is nil. One that is a file by itself stays as it is: only
// the user has it allowed.
func (e *Environment) over(task *Environment) (*Environment, error) {
	if e == nil || task == nil || e.isFile() {
		return e, nil
	}
	if task.isFile() {
		return nil, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: errors.New("environment: that of the task is a file, and a row of data says nothing beside it"),
			Hint: "write the samples in the task file",
		}
	}
	out := *task
	out.Image, out.User, out.Workdir = cmp.Or(e.Image, task.Image), cmp.Or(e.User, task.User), cmp.Or(e.Workdir, task.Workdir)
	out.Network, out.Runtime = cmp.Or(e.Network, task.Network), cmp.Or(e.Runtime, task.Runtime)
	out.Env = maps.Clone(task.Env)
	if out.Env == nil {
		out.Env = map[string]string{}
	}
	maps.Copy(out.Env, e.Env)
	return &out, nil
}

// isFile reports whether the environment is what a file says.
func (e *Environment) isFile() bool { return e.File != "" || len(e.Compose) > 0 || e.Dockerfile != "" }
