package taskfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/hostpath"
	"github.com/fumehood/fumehood/score"
	"github.com/fumehood/fumehood/spec"
	"github.com/fumehood/fumehood/task"
)

// mostProblems is how many samples' faults are told at once.
const mostProblems = 20

// maxShared bounds what all samples together have of the defaults' files, metadata and steps, of which each has its own.
const maxShared = 1_000_000

// step is a Step that is ready to be run.
type step struct {
	Step
	stdin task.Content
	wall  time.Duration // 0 for no limit
	cpu   time.Duration // likewise
}

// resolve makes of each sample what it is with what the task says for all, and checks it.
func (f *File) resolve(dir string, gate hostpath.Gate, opts ReadOptions) error {
	f.Epochs = cmp.Or(f.Epochs, DefaultEpochs)
	if n := len(f.Files) + len(f.Metadata) + len(f.Steps); n > 0 && len(f.Samples) > maxShared/n {
		return &fumehood.Error{
			Op: f.File, Class: fumehood.ErrConfig,
			Err: fmt.Errorf("%d samples with %d files, metadata and steps of the defaults each are too many: %d in all at most", len(f.Samples), n, maxShared),
		}
	}
	own := source{file: f.File, dir: dir, gate: gate}
	envs := &environments{opts: opts, known: map[*Environment]environment{}}
	var errs []error
	for _, s := range f.Samples {
		err := s.resolve(&f.Defaults, own, envs)
		if err == nil && f.byID[s.ID] != nil {
			err = fmt.Errorf("there is one of that id already, at %s", f.byID[s.ID].at)
		}
		if err != nil {
			errs = append(errs, &fumehood.Error{Op: fmt.Sprintf("%s: sample %q", s.at, s.ID), Class: fumehood.ErrConfig, Err: err})
		}
		if len(errs) == mostProblems {
			errs = append(errs, errors.New("there may be more"))
			break
		}
		f.byID[s.ID] = s
		f.noteFiles(s)
	}
	f.provider, f.buildings = cmp.Or(envs.provider, spec.TypeDocker), envs.buildings
	return errors.Join(errs...)
}

// noteFiles notes the files of a sample that images may not have, or its own only.
func (f *File) noteFiles(s *Sample) {
	f.secrets.AddOf(s.ID, s.content.Setup.Path)
	for _, content := range s.content.Files {
		f.secrets.AddOf(s.ID, content.Path)
	}
	for _, st := range s.steps {
		f.secrets.AddOf(s.ID, st.stdin.Path)
	}
	if s.grader != nil {
		for _, m := range s.grader.Hidden {
			f.secrets.Add(m.Host)
		}
	}
}

// resolve sets what follows from a sample and the defaults.
func (s *Sample) resolve(defaults *Defaults, from source, envs *environments) error {
	if err := s.resolveSteps(defaults, from); err != nil {
		return err
	}
	metadata := maps.Clone(defaults.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	maps.Copy(metadata, s.Metadata)
	s.content = task.Sample{ID: s.ID, Metadata: metadata, Files: map[string]task.Content{}}
	if err := s.resolveFiles(defaults, from); err != nil {
		return err
	}
	if err := envs.allow(s, s.checkData(defaults)); err != nil {
		return err
	}
	if s.source.data {
		if err := s.overTask(defaults); err != nil {
			return err
		}
	}
	env, err := envs.either(s.Environment, s.source, defaults.Environment, from)
	if err != nil {
		return err
	}
	if err := envs.allow(s, above("limits", s.Limits, env.with(defaults.Limits).Limits)); err != nil {
		return err
	}
	s.spec = env.with(s.Limits, defaults.Limits)
	env.needs(s.ID, &s.spec)
	if err := s.spec.Validate(); err != nil {
		return err
	}
	return s.resolveScore(defaults, from, env, envs)
}

// resolveFiles sets what is put into the sandbox, and its set-up.
func (s *Sample) resolveFiles(defaults *Defaults, from source) (err error) {
	for key, value := range defaults.Files {
		if _, own := s.Files[key]; own {
			continue
		}
		if s.content.Files[key], err = from.content(value); err != nil {
			return fmt.Errorf("file %q: %w", key, err)
		}
	}
	for key, value := range s.Files {
		if s.content.Files[key], err = s.source.content(value); err != nil {
			return fmt.Errorf("file %q: %w", key, err)
		}
	}
	setup, where := s.Setup, s.source
	if setup == "" {
		setup, where = defaults.Setup, from
	}
	if s.content.Setup, err = where.content(setup); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return nil
}

// content is what a value of a task file stands for. A file of this machine has to be one that the task may read.
func (from source) content(value string) (task.Content, error) {
	c := task.ContentOf(value, from.dir)
	switch {
	case c.Path == "":
		return c, nil
	case from.data && !filepath.IsLocal(value):
		return task.Content{Text: value}, nil
	}
	return c, from.gate.File(c.Path, maxFile)
}

// resolveSteps sets which commands are run.
func (s *Sample) resolveSteps(defaults *Defaults, from source) error {
	steps, where := s.Steps, s.source
	command := s.Command
	stdin, err := s.source.content(s.Stdin)
	if s.Stdin == "" {
		stdin, err = from.content(defaults.Stdin)
	}
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	switch {
	case s.Command != nil && s.Steps != nil:
		return errors.New("it has a command and steps, of which one is needed")
	case s.Command == nil && s.Steps == nil:
		if defaults.Command != nil && defaults.Steps != nil {
			return errors.New("the task has a command and steps, of which one is needed")
		}
		command, steps, where = defaults.Command, defaults.Steps, from
	}
	if command != nil {
		one := step{Step: Step{Name: "1", Command: command}, stdin: stdin, wall: s.wall(0, defaults)}
		one.cpu, err = s.cpuTime(0, defaults)
		s.steps = []step{one}
		return err
	}
	if len(steps) == 0 {
		return errors.New("it has neither a command nor steps")
	}
	if stdin != (task.Content{}) {
		return errors.New("stdin goes with a command: each step has its own")
	}
	names := map[string]bool{}
	s.steps = nil
	for i, st := range steps {
		st.Name = cmp.Or(st.Name, strconv.Itoa(i+1))
		switch {
		case names[st.Name]:
			return fmt.Errorf("there are two steps %q", st.Name)
		case st.Background && st.Expect != nil:
			return fmt.Errorf("step %q: nothing can be expected of what is ended at the end", st.Name)
		case st.Background && i == len(steps)-1:
			return fmt.Errorf("step %q: the last step cannot be in the background", st.Name)
		}
		if st.Expect != nil {
			if err := st.Expect.Validate(); err != nil {
				return fmt.Errorf("step %q: %w", st.Name, err)
			}
		}
		names[st.Name] = true
		cpu, err := s.cpuTime(st.CPUTime, defaults)
		if err != nil {
			return fmt.Errorf("step %q: %w", st.Name, err)
		}
		stdin, err := where.content(st.Stdin)
		if err != nil {
			return fmt.Errorf("step %q: stdin: %w", st.Name, err)
		}
		s.steps = append(s.steps, step{Step: st, stdin: stdin, wall: s.wall(st.Timeout, defaults), cpu: cpu})
	}
	return nil
}

// wall is the limit of a command; 0 for none.
func (s *Sample) wall(own time.Duration, defaults *Defaults) time.Duration {
	return limit(cmp.Or(own, s.Timeout, defaults.Timeout, DefaultTimeout))
}

// cpuTime is the limit of a command's processor time; 0 for none. The kernel counts whole seconds.
func (s *Sample) cpuTime(own time.Duration, defaults *Defaults) (time.Duration, error) {
	d := limit(cmp.Or(own, s.CPUTime, defaults.CPUTime))
	if d%time.Second != 0 {
		return 0, fmt.Errorf("its cpu_time of %v is not in whole seconds", d)
	}
	return d, nil
}

// limit is a duration of a file as others have it: 0 for none.
func limit(d time.Duration) time.Duration {
	if d == fumehood.NoLimit {
		return 0
	}
	return d
}

// resolveScore sets how the sample is scored.
func (s *Sample) resolveScore(defaults *Defaults, from source, env environment, envs *environments) error {
	grader := s.Grader
	where := s.source
	switch {
	case s.Expect != nil && s.Grader != nil:
		return errors.New("it has expectations and a grader, of which one is needed")
	case s.Expect == nil && s.Grader == nil:
		if defaults.Expect != nil && defaults.Grader != nil {
			return errors.New("the task has expectations and a grader, of which one is needed")
		}
		s.Expect, grader, where = defaults.Expect, defaults.Grader, from
	}
	if s.Expect != nil {
		return s.Expect.Validate()
	}
	if grader == nil {
		if last := s.steps[len(s.steps)-1]; last.Expect == nil {
			s.Expect = &score.Expect{}
		}
		return nil
	}
	g, err := grader.resolve(s.ID, where, env, envs)
	if err != nil {
		return fmt.Errorf("grader: %w", err)
	}
	s.grader = g
	return nil
}

// resolve is the grader, but for its provider, of the sample id with that environment.
func (g *Grader) resolve(id string, from source, env environment, envs *environments) (*score.Grader, error) {
	if g.Environment != nil {
		var err error
		if env, err = envs.of(g.Environment, from); err != nil {
			return nil, err
		}
	} else {
		env.Network, env.Ports = fumehood.Network{}, nil // which graders have not
	}
	out := &score.Grader{
		Spec: env.with(g.Limits, spec.Limits{}), Artifacts: g.Artifacts, ByExitCode: g.Score == scoreExitCode, MaxBytes: g.MaxSize, MaxFiles: g.MaxFiles,
		Cmd: fumehood.Cmd{Args: g.Command, User: g.User, Dir: g.Workdir, Env: g.Env, Timeout: limit(g.Timeout)},
	}
	env.needs(id, &out.Spec)
	for _, host := range slices.Sorted(maps.Keys(g.Hidden)) {
		path := inDir(from.dir, host)
		if from.data && !filepath.IsLocal(host) {
			return nil, fmt.Errorf("the hidden %q is outside of the folder of the data that names it", host)
		}
		if err := from.gate.Check(path); err != nil {
			return nil, fmt.Errorf("the hidden %q: %w", host, err)
		}
		if !exists(path) {
			return nil, fmt.Errorf("the hidden %q is not there: %s", host, path)
		}
		out.Hidden = append(out.Hidden, fumehood.Mount{Host: path, Container: g.Hidden[host]})
	}
	return out, out.Validate()
}
