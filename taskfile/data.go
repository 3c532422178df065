package taskfile

import (
	"cmp"
	"errors"
	"fmt"

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
