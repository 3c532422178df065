package score

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

// Grader scores the attempts of task.Run by a command in a separate sandbox, which is started for each attempt
// and used for nothing else. Sandbox must be among the sample's Others. Of the attempt, only the artifacts are
// copied into it, under docker by the Engine's archive calls. They are checked: only plain files and folders
// within the limits are accepted. The command runs without help from processes in the sandbox (see
// fumehood.Cmd.ViaEngine). So code of the attempt that it runs cannot tamper with the report of its end and its
// output.
//
// Problems that the attempt has caused, or may have caused, are a score of 0 with a reason: an artifact that is
// missing, a link or too large, and a command that runs out of time or memory, fails, or prints no valid score. A
// command that fails is an error only if the attempt has no artifacts, or if the command fails in the same way for
// empty ones: then the grader is wrong. This is tried at the first failure, and the result is kept.
//
// A command that runs code of the attempt as its own user and with its own standard output lets that code set the
// score. It must run the code as another user, in a separate process, and read what that prints.
type Grader struct {
	// Spec is the spec of the sandboxes. It must have no network, Name, Labels or Keep. A Compose project of
	// files is rejected.
	Spec fumehood.Spec
	// Hidden are folders and files of this machine that only the grader sees. They are copied into its sandbox,
	// independent of Writable, and only the command's user can read them there: folders have mode 0700, files
	// 0600 or 0700.
	Hidden []fumehood.Mount
	// Artifacts are copied there, in this order.
	Artifacts []Artifact
	// Cmd is the command. The grader sets its ViaEngine and output caps. With a Timeout of 0 the limit is
	// DefaultGraderTime.
	Cmd fumehood.Cmd
	// ByExitCode computes the score from the exit code: 1 for 0, and 0 for every other end. Otherwise the command
	// must exit with 0 and print what Parse reads; everything else is a failure.
	ByExitCode bool
	// ErrorOnFailure makes each failure of the command an error. Attempts that can cause one have no score then.
	ErrorOnFailure bool
	// MaxBytes and MaxFiles bound all artifacts together. 0 means DefaultMaxBytes and DefaultMaxFiles.
	MaxBytes int64
	MaxFiles int

	empty empties
}

// DefaultGraderTime is the time limit of a grader's command without a Timeout.
const DefaultGraderTime = 10 * time.Minute

// Validate checks what can be checked without a sandbox. Its errors are fumehood.ErrConfig.
func (g *Grader) Validate() error {
	err := g.validate()
	if err == nil {
		s := g.Sandbox()
		if err = s.Validate(); err == nil {
			return nil
		}
	}
	return &fumehood.Error{Op: "read grader", Class: fumehood.ErrConfig, Err: err}
}

func (g *Grader) validate() error {
	s := &g.Spec
	switch {
	case len(g.Cmd.Args) == 0:
		return errors.New("it has no command")
	case g.Cmd.Detach || g.Cmd.StdinPipe || g.Cmd.Stdin != nil || g.Cmd.TTY:
		return errors.New("its command can neither be detached, nor have an input or a terminal")
	case !s.Network.IsNone() || len(s.Ports) > 0:
		return errors.New("its sandbox has no network")
	case s.Compose != nil && (len(s.Compose.Files) > 0 || s.Compose.Content != "" || s.Compose.Egress != "" || s.Compose.AllowUnsafe):
		return errors.New("its sandbox is a Compose project, which a grader cannot have: give it an image or a Dockerfile")
	case s.Name != "" || s.Keep || len(s.Labels) > 0:
		return errors.New("its spec has a Name, Labels or Keep, which graders cannot have")
	case g.MaxBytes < 0 || g.MaxFiles < 0:
		return errors.New("a limit of its artifacts is negative")
	}
	if err := g.checkHidden(); err != nil {
		return err
	}
	var taken []string
	for _, m := range append(s.Mounts, g.Hidden...) {
		taken = append(taken, path.Clean(m.Container))
	}
	for _, a := range g.Artifacts {
		if err := a.validate(); err != nil {
			return err
		}
		to := a.to()
		for _, other := range taken {
			if within(to, other) || within(other, to) {
				return fmt.Errorf("the artifact %q goes to %s, which overlaps %s", a.Path, to, other)
			}
		}
		taken = append(taken, to)
	}
	return nil
}

// within reports whether a clean path is dir or below it.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimRight(dir, "/")+"/")
}

// Sandbox returns the spec of the sandboxes in which attempts are graded.
func (g *Grader) Sandbox() fumehood.Spec { return g.Spec }

// Score grades an attempt, as a task.Scorer, and sets Attempt.Grader. Its errors are *fumehood.Errors.
func (g *Grader) Score(ctx context.Context, a *task.Attempt) (score task.Score, err error) {
	if err := g.Validate(); err != nil {
		return task.Score{}, err
	}
	err = a.Beside(ctx, g.Sandbox(), func(ctx context.Context, sb fumehood.Sandbox) (err error) {
		score, err = g.grade(ctx, a, sb)
		return err
	})
	if f, ok := errors.AsType[*failure](err); ok && !g.ErrorOnFailure && len(g.Artifacts) > 0 {
		score, err = g.blame(ctx, a, f)
	}
	if err != nil {
		return task.Score{}, fmt.Errorf("grade: %w", err)
	}
	return score, nil
}

// grade copies the artifacts of an attempt to a sandbox, and scores them there.
func (g *Grader) grade(ctx context.Context, a *task.Attempt, sb fumehood.Sandbox) (task.Score, error) {
	if err := g.hide(ctx, sb); err != nil {
		return task.Score{}, err
	}
	left := &room{cmp.Or(g.MaxBytes, DefaultMaxBytes), cmp.Or(g.MaxFiles, DefaultMaxFiles)}
	for _, artifact := range g.Artifacts {
		err := artifact.carry(ctx, a.Sandbox, sb.ViaEngine(), left)
		switch {
		case err == nil:
		case errors.Is(err, fumehood.ErrLimit): // it does not fit into the grader's sandbox
			return task.Score{Reasons: []string{fmt.Sprintf("the artifact %s is rejected: %v", quote(artifact.Path), err)}}, nil
		case !isUnfit(err):
			return task.Score{}, fmt.Errorf("copy the artifact %s: %w", quote(artifact.Path), err)
		case artifact.Optional && err.Error() == notThere:
		default:
			return task.Score{Reasons: []string{fmt.Sprintf("the artifact %s is rejected: %v", quote(artifact.Path), err)}}, nil
		}
	}
	step, err := g.runGrader(ctx, sb)
	if err != nil {
		return task.Score{}, err
	}
	a.Grader = step
	return g.scoreOf(step.Result)
}

// runGrader runs the command. An error that it did not start is a failure.
func (g *Grader) runGrader(ctx context.Context, sb fumehood.Sandbox) (*task.Step, error) {
	cmd := g.Cmd
	cmd.ViaEngine, cmd.Grace, cmd.StdoutCap, cmd.StderrCap = true, fumehood.NoGrace, maxPrinted+1, maxPrinted
	if cmd.Timeout == 0 {
		cmd.Timeout = DefaultGraderTime
	}
	r, err := sb.Exec(ctx, cmd)
	if errors.Is(err, fumehood.ErrNotStarted) {
		err = &failure{"did not start", err}
	}
	if err != nil {
		return nil, err
	}
	return &task.Step{Name: "grader", Cmd: cmd, Result: r}, nil
}

// scoreOf returns the score for how the command ended.
func (g *Grader) scoreOf(r *fumehood.Result) (task.Score, error) {
	fail := func(class error, format string, a ...any) error {
		why := fmt.Errorf("the grader's command "+format, a...)
		for _, out := range []struct{ name, text string }{{"error", r.Stderr.Text()}, {"output", r.Stdout.Text()}} {
			if text := strings.TrimSpace(out.text); text != "" {
				why = fmt.Errorf("%w; the end of its standard %s: %s", why, out.name, quote(text[max(0, len(text)-shown):]))
			}
		}
		return &fumehood.Error{Class: class, Err: why}
	}
	switch {
	case r.Outcome == fumehood.Lost && r.CausedInside:
		return task.Score{Reasons: []string{"the grader's command " + describeResult(r)}}, nil
	case r.Outcome == fumehood.Lost:
		return task.Score{}, fail(fumehood.ErrUnavailable, "is lost: %s", cmp.Or(r.Reason, "how it ended is not known"))
	case g.ByExitCode && r.Success():
		return task.Score{Value: 1}, nil
	case g.ByExitCode, exceeds(r.Outcome):
		return task.Score{Reasons: []string{"the grader's command " + describeResult(r)}}, nil
	case !r.Success() && (r.Usage.PIDsLimits > 0 || r.Usage.OOMKills > 0): // also possibly on purpose
		return task.Score{Reasons: []string{"the grader's command " + describeResult(r) + ", and its sandbox had reached its limit of processes or memory"}}, nil
	case !r.Success():
		return task.Score{}, &failure{describeResult(r), fail(fumehood.ErrConfig, "%s, and not with 0", describeResult(r))}
	}
	s, err := Parse(r.Stdout.Bytes)
	if r.Stdout.Truncated() {
		err = fmt.Errorf("it has %d bytes", r.Stdout.Total)
	}
	if err != nil {
		return task.Score{}, &failure{"printed no score", fail(fumehood.ErrConfig, "has printed no score: %v", err)}
	}
	return s, nil
}

// shown is the number of bytes of each output of a grader that an error contains.
const shown = 100

// exceeds reports whether a command ended because of a limit. Code of the attempt that a grader runs may cause that on purpose.
func exceeds(o fumehood.Outcome) bool {
	switch o {
	case fumehood.TimedOut, fumehood.CPUTimeExceeded, fumehood.OutOfMemory:
		return true
	case fumehood.Exited, fumehood.Signaled, fumehood.Lost:
	}
	return false
}
