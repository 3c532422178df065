package taskfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session/spec"
)

// checkData returns an error for keys that a row of data must not set, because data may come from third parties:
// the user, the network, access to this machine, and unlimited time.
func (s *Sample) checkData(defaults *Defaults) error {
	var set []string
	note := func(key string, is bool) {
		if is {
			set = append(set, key)
		}
	}
	environment := func(owner string, e *Environment) {
		if e == nil {
			return
		}
		note(owner+"environment.file", e.File != "")
		note(owner+"environment.compose", len(e.Compose) > 0)
		note(owner+"environment.dockerfile", e.Dockerfile != "")
		note(owner+"environment.network", e.Network != "" && e.Network != fumehood.NetworkNone)
		note(owner+"environment.runtime", e.Runtime != "")
		note(owner+"environment.seccomp", e.Seccomp != "")
		note(owner+"environment.shm_size", e.ShmSize != 0)
		note(owner+"environment.tmpfs", len(e.Tmpfs) > 0)
		note(owner+"environment.user", e.User != "")
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
		note("grader.cpu_time of none", g.CPUTime == fumehood.NoLimit)
		var graders fumehood.Limits
		if defaults.Grader != nil {
			graders = fumehood.Limits(defaults.Grader.Limits)
		}
		errs = append(errs, above("grader.limits", g.Limits, graders))
	}
	for _, key := range set {
		errs = append(errs, fmt.Errorf("%s cannot be set by a row of data", key))
	}
	return errors.Join(errs...)
}

// above returns an error for limits of a row that exceed those of the task, including its environment.
func above(key string, row spec.Limits, most fumehood.Limits) error {
	var errs []error
	say := func(name string, is bool) {
		if is {
			errs = append(errs, fmt.Errorf("%s.%s is above the limit of the task, which a row of data cannot raise", key, name))
		}
	}
	most = most.WithDefaults()
	say("memory", exceeds(row.Memory, most.Memory))
	say("cpus", exceeds(row.CPUs, most.CPUs))
	say("pids", exceeds(row.PIDs, most.PIDs))
	say("disk", row.Disk != 0 && most.Disk == 0 || exceeds(row.Disk, most.Disk)) // the default is the provider's
	return errors.Join(errs...)
}

// exceeds reports whether a limit is above another. fumehood.NoLimit is above all others; 0 means that no limit
// is set.
func exceeds[T cmp.Ordered](limit, most T) bool {
	var zero T
	return limit != zero && most >= zero && (limit < zero || limit > most)
}

// overTask sets the environments of a row of data and its grader to those of the task, with the values of the row
// on top. So a row that names another image keeps the task's runtime, user and network.
func (s *Sample) overTask(defaults *Defaults) (err error) {
	env := defaults.Environment
	if s.Environment, err = s.Environment.over(env); err != nil || s.Grader == nil {
		return err
	}
	if defaults.Grader != nil && defaults.Grader.Environment != nil {
		env = defaults.Grader.Environment
	}
	if s.Grader.Environment, err = s.Grader.Environment.over(env); err != nil {
		return fmt.Errorf("grader: %w", err)
	}
	return nil
}

// over returns an environment of data on top of the task's, or nil if e is nil. An environment that is a file is
// returned unchanged: only the user can allow it.
func (e *Environment) over(task *Environment) (*Environment, error) {
	if e == nil || task == nil || e.isFile() {
		return e, nil
	}
	if task.isFile() {
		return nil, &fumehood.Error{
			Class: fumehood.ErrConfig, Err: errors.New("environment: that of the task is a file, which a row of data cannot change"),
			Hint: "write the samples in the task file",
		}
	}
	out := *task
	out.Image, out.User, out.Workdir = cmp.Or(e.Image, task.Image), cmp.Or(e.User, task.User), cmp.Or(e.Workdir, task.Workdir)
	out.Seccomp, out.ShmSize = cmp.Or(e.Seccomp, task.Seccomp), cmp.Or(e.ShmSize, task.ShmSize)
	if e.Tmpfs != nil {
		out.Tmpfs = e.Tmpfs
	}
	out.Network, out.Runtime = cmp.Or(e.Network, task.Network), cmp.Or(e.Runtime, task.Runtime)
	out.Env = maps.Clone(task.Env)
	if out.Env == nil {
		out.Env = map[string]string{}
	}
	maps.Copy(out.Env, e.Env)
	return &out, nil
}

// isFile reports whether a file defines the environment.
func (e *Environment) isFile() bool { return e.File != "" || len(e.Compose) > 0 || e.Dockerfile != "" }
