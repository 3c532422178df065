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

// mostProblems is the maximum number of samples whose errors are reported at once.
const mostProblems = 20

// maxShared bounds the total number of the defaults' files, metadata and steps over all samples, because each
// sample has a copy of them.
const maxShared = 1_000_000

// step is a Step that is ready to run.
type step struct {
	Step
	stdin task.Content
	wall  time.Duration // 0 for no limit
	cpu   time.Duration // 0 for no limit
}

// resolve combines each sample with the task's defaults, and checks it.
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
			err = fmt.Errorf("duplicate id, already used at %s", f.byID[s.ID].at)
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

// noteFiles records the files of a sample that must not be in images, or only in the sample's own.
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

// resolve sets the values that are computed from a sample and the defaults.
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

// resolveFiles sets the files to copy into the sandbox, and its setup.
func (s *Sample) resolveFiles(defaults *Defaults, from source) (err error) {
	put := func(files map[string]string, from source) {
		for key, value := range files {
			if _, there := s.content.Files[key]; there || err != nil {
				continue
			}
			if s.content.Files[key], err = from.content(value); err != nil {
				err = fmt.Errorf("file %q: %w", key, err)
			}
		}
	}
	put(s.Files, s.source)
	put(defaults.Files, from)
	if err != nil {
		return err
	}
	if s.content.Setup, err = s.text(s.Setup, defaults.Setup, from); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return nil
}

// text returns the content of the sample's own value, or else of the task's.
func (s *Sample) text(own, otherwise string, from source) (task.Content, error) {
	if own != "" {
		return s.source.content(own)
	}
	return from.content(otherwise)
}

// content returns the content that a value of a task file stands for. A file of this machine must be one that the
// task may read.
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

// resolveSteps sets the commands to run. A single command becomes a step.
func (s *Sample) resolveSteps(defaults *Defaults, from source) error {
	whose, of, where := "it", &s.Defaults, s.source
	if s.Command == nil && s.Steps == nil {
		whose, of, where = "the task", defaults, from
	}
	stdin, err := s.text(s.Stdin, defaults.Stdin, from)
	steps := of.Steps
	switch {
	case err != nil:
		return fmt.Errorf("stdin: %w", err)
	case of.Command != nil && of.Steps != nil:
		return errors.New(whose + " has a command and steps, but must have exactly one of them")
	case of.Command != nil:
		steps = []Step{{Command: of.Command}}
	case len(steps) == 0:
		return errors.New("it has neither a command nor steps")
	case stdin != (task.Content{}):
		return errors.New("stdin goes with a command: each step has its own")
	}
	names := map[string]bool{}
	s.steps = nil
	for i, st := range steps {
		st.Name = cmp.Or(st.Name, strconv.Itoa(i+1))
		if names[st.Name] {
			return fmt.Errorf("duplicate step name %q", st.Name)
		}
		names[st.Name] = true
		ready := step{Step: st, stdin: stdin, wall: s.wall(st.Timeout, defaults)}
		err := st.check(i == len(steps)-1)
		if err == nil {
			ready.cpu, err = s.cpuTime(st.CPUTime, defaults)
		}
		if err == nil && of.Command == nil {
			if ready.stdin, err = where.content(st.Stdin); err != nil {
				err = fmt.Errorf("stdin: %w", err)
			}
		}
		if err != nil {
			return fmt.Errorf("step %q: %w", st.Name, err)
		}
		s.steps = append(s.steps, ready)
	}
	return nil
}

// check returns an error for a step that cannot run as it is. Last reports whether it is the last step.
func (st *Step) check(last bool) error {
	switch {
	case st.Background && st.Expect != nil:
		return errors.New("nothing can be expected of a step in the background")
	case st.Background && last:
		return errors.New("the last step cannot be in the background")
	case st.Expect != nil:
		return st.Expect.Validate()
	}
	return nil
}

// wall returns the time limit of a command; 0 means no limit.
func (s *Sample) wall(own time.Duration, defaults *Defaults) time.Duration {
	return limit(cmp.Or(own, s.Timeout, defaults.Timeout, DefaultTimeout))
}

// cpuTime returns the limit of a command's processor time; 0 means no limit. The kernel counts whole seconds.
func (s *Sample) cpuTime(own time.Duration, defaults *Defaults) (time.Duration, error) {
	d := limit(cmp.Or(own, s.CPUTime, defaults.CPUTime))
	if d%time.Second != 0 {
		return 0, fmt.Errorf("its cpu_time of %v is not in whole seconds", d)
	}
	return d, nil
}

// limit converts a duration of a file: the result 0 means no limit.
func limit(d time.Duration) time.Duration {
	if d == fumehood.NoLimit {
		return 0
	}
	return d
}

// resolveScore sets how the sample is scored.
func (s *Sample) resolveScore(defaults *Defaults, from source, env environment, envs *environments) error {
	whose, of, where := "it", &s.Defaults, s.source
	if s.Expect == nil && s.Grader == nil {
		whose, of, where = "the task", defaults, from
	}
	s.Expect = of.Expect
	switch {
	case of.Expect != nil && of.Grader != nil:
		return errors.New(whose + " has expectations and a grader, but must have exactly one of them")
	case of.Expect != nil:
		return of.Expect.Validate()
	case of.Grader == nil:
		if s.steps[len(s.steps)-1].Expect == nil {
			s.Expect = &score.Expect{}
		}
		return nil
	}
	g, err := of.Grader.resolve(s.ID, where, env, envs)
	if err != nil {
		return fmt.Errorf("grader: %w", err)
	}
	s.grader = g
	return nil
}

// resolve returns the grader, without its provider, of the sample id with that environment.
func (g *Grader) resolve(id string, from source, env environment, envs *environments) (*score.Grader, error) {
	if g.Environment != nil {
		var err error
		if env, err = envs.of(g.Environment, from); err != nil {
			return nil, err
		}
	} else {
		env.Network, env.Ports = fumehood.Network{}, nil // graders have neither network nor ports
	}
	out := &score.Grader{
		Spec: env.with(g.Limits, spec.Limits{}), Artifacts: g.Artifacts, ByExitCode: g.Score == scoreExitCode, MaxBytes: g.MaxSize, MaxFiles: g.MaxFiles,
		Cmd: fumehood.Cmd{Args: g.Command, User: g.User, Dir: g.Workdir, Env: g.Env, Timeout: limit(g.Timeout)},
	}
	env.needs(id, &out.Spec)
	for _, host := range slices.Sorted(maps.Keys(g.Hidden)) {
		path := inDir(from.dir, host)
		if from.data && !filepath.IsLocal(host) {
			return nil, fmt.Errorf("hidden path %q is outside of the folder of the data that names it", host)
		}
		if err := from.gate.Check(path); err != nil {
			return nil, fmt.Errorf("hidden path %q: %w", host, err)
		}
		if !exists(path) {
			return nil, fmt.Errorf("hidden path %q does not exist: %s", host, path)
		}
		out.Hidden = append(out.Hidden, fumehood.Mount{Host: path, Container: g.Hidden[host]})
	}
	return out, out.Validate()
}
