package taskfile

import (
	"context"
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/score"
	"github.com/fumehood/fumehood/session/spec"
)

// Provider returns the name of the provider that the task needs: "docker", or "local" if its environment specs
// have that type.
func (f *File) Provider() string { return f.provider }

// TaskOptions define how a File becomes a task.
type TaskOptions struct {
	// Exclude lists files and folders of this machine that are left out of images, wherever they are in the
	// context of a build: for example folders of runs, which contain answers. Always left out are the task file,
	// files of samples, and what only graders may see. Files that samples get are left out unless every sample of
	// the image gets them.
	Exclude []string
	// Progress is called for each step of a build. It may be nil.
	Progress func(tag, step string)
}

// Task returns the task for task.Init and task.Run, and the options for task.Run: Epochs, Timeout, Solve and
// Score. First it builds the images of the environment specs with docker.build, unless an image of the same
// inputs exists (see envimage.Build). The sandboxes use exactly these images. A task of type local with another
// provider, or of another type with the local provider, is an ErrConfig: containers would become processes of
// this machine, or the reverse.
func (f *File) Task(ctx context.Context, p fumehood.Provider, opts TaskOptions) (task.Options, task.RunOptions, error) {
	if name := p.Name(); name != f.provider && (name == spec.TypeLocal || f.provider == spec.TypeLocal) {
		return task.Options{}, task.RunOptions{}, &fumehood.Error{
			Op: "read task", Path: f.File, Class: fumehood.ErrConfig, Err: fmt.Errorf("it needs provider %s, not %s", f.provider, name),
		}
	}
	f.secrets.Add(opts.Exclude...)
	if err := f.build(ctx, p, opts.Progress); err != nil {
		return task.Options{}, task.RunOptions{}, err
	}
	taskOpts := task.Options{Name: f.Name, Provider: p, SetupTimeout: f.SetupTimeout, Exclude: f.secrets.Exclude}
	for _, s := range f.Samples {
		sample := s.content
		sample.Spec = &s.spec
		if s.grader != nil {
			sample.Others = []fumehood.Spec{s.grader.Sandbox()}
		}
		taskOpts.Samples = append(taskOpts.Samples, sample)
	}
	return taskOpts, task.RunOptions{Epochs: f.Epochs, Timeout: limit(f.AttemptTimeout), Solve: f.solve, Score: f.score}, nil
}

// sample returns the sample of an attempt.
func (f *File) sample(a *task.Attempt) (*Sample, error) {
	if s := f.byID[a.Sample.ID]; s != nil {
		return s, nil
	}
	return nil, &fumehood.Error{Op: "run task " + f.Name, Class: fumehood.ErrConfig, Err: fmt.Errorf("it has no sample %q", a.Sample.ID)}
}

// solve runs a sample's steps, until the expectations of one are not met.
func (f *File) solve(ctx context.Context, a *task.Attempt) error {
	s, err := f.sample(a)
	if err != nil {
		return err
	}
	var behind background
	err = runSteps(ctx, a, s, &behind)
	return errors.Join(err, behind.end(ctx, a))
}

func runSteps(ctx context.Context, a *task.Attempt, s *Sample, behind *background) error {
	if err := ready(ctx, a, s); err != nil {
		return err
	}
	ran := false
	for i := range s.steps {
		st := &s.steps[i]
		err := st.runStep(ctx, a, behind)
		if ran && errors.Is(err, fumehood.ErrNotStarted) {
			// An earlier step may have removed the program, or failed to create it. That is an outcome of the
			// attempt.
			a.Unstarted = fmt.Sprintf("step %s: %v", st.Name, err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("step %q: %w", st.Name, err)
		}
		ran = true
		if n := len(a.Steps); n > 0 && a.Steps[n-1].Result.Outcome == fumehood.Lost {
			return nil // the loss decides about the attempt
		}
		if st.Expect == nil {
			continue
		}
		reasons, err := st.Expect.Check(ctx, a.Steps[len(a.Steps)-1].Result)
		if err != nil || len(reasons) > 0 {
			return err
		}
	}
	return nil
}

// ready checks, before the first command runs, that each user of the steps can run commands: a command could
// prevent that for other users. A missing user is accepted, because a step may create it.
func ready(ctx context.Context, a *task.Attempt, s *Sample) error {
	done := map[[2]string]bool{}
	for i := range s.steps {
		st := &s.steps[i]
		who := [2]string{st.Service, st.User}
		if st.User == "" || done[who] {
			continue
		}
		done[who] = true
		svc, err := st.service(a)
		if err == nil {
			_, err = svc.As(st.User).Stat(ctx, "/")
		}
		if err != nil && !errors.Is(err, fumehood.ErrUserNotFound) {
			return fmt.Errorf("step %q: %w", st.Name, err)
		}
	}
	return nil
}

// service returns the service that the step runs in.
func (st *step) service(a *task.Attempt) (fumehood.Service, error) {
	if st.Service == "" {
		return a.Sandbox, nil
	}
	return a.Sandbox.Lookup(st.Service)
}

// runStep runs a step and records it, or starts it in the background.
func (st *step) runStep(ctx context.Context, a *task.Attempt, behind *background) error {
	svc, err := st.service(a)
	if err != nil {
		return err
	}
	cmd := fumehood.Cmd{Args: st.Command, Dir: st.Workdir, Env: st.Env, User: st.User, Timeout: st.wall, CPUTime: st.cpu, KillRest: true}
	if st.stdin != (task.Content{}) {
		in, _, err := st.stdin.Open()
		if err != nil {
			return &fumehood.Error{Op: "read stdin", Class: fumehood.ErrConfig, Err: err}
		}
		if st.Background {
			behind.inputs = append(behind.inputs, in)
		} else {
			defer in.Close()
		}
		cmd.Stdin = in
	}
	if st.Background {
		p, err := svc.Start(ctx, cmd)
		if err == nil {
			behind.begun = append(behind.begun, running{p, len(a.Steps), task.Step{Name: st.Name, Cmd: cmd}})
		}
		return err
	}
	r, err := svc.Exec(ctx, cmd)
	if err == nil {
		a.Steps = append(a.Steps, task.Step{Name: st.Name, Cmd: cmd, Result: r})
	}
	return err
}

// score scores an attempt by the sample's expectations or its grader. The expectations of single steps are
// checked first.
func (f *File) score(ctx context.Context, a *task.Attempt) (task.Score, error) {
	s, err := f.sample(a)
	if err != nil {
		return task.Score{}, err
	}
	byStep := map[string]*score.Expect{}
	for _, st := range s.steps {
		byStep[st.Name] = st.Expect
	}
	got, err := score.Expectations(s.Expect, byStep)(ctx, a)
	if err != nil || !got.Passed() || s.grader == nil {
		return got, err
	}
	return s.grader.Score(ctx, a)
}
