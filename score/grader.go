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
	"github.com/fumehood/fumehood/task"
)

// Grader scores the attempts of task.Run by a command in a sandbox of its own, made for each attempt and used for nothing
// else; Sandbox has to be among the sample's Others. Of the attempt nothing gets there but the artifacts, by the Engine's
// archive calls under docker, and they are checked: plain files and folders only, within the limits. The command runs
// without the help of anything in the sandbox (see fumehood.Cmd.ViaEngine), so that what it runs of the attempt's cannot meddle
// with how its end and its output are told.
//
// What is the attempt's fault, or may be, is a score of 0 with a reason: an artifact that is missing, a link, or too large, and
// a command that runs out of time or memory. What is the grader's is an error.
//
// A command that runs what the attempt has left, as the same user and with its own standard output, hands it the score.
// It has to run it as another user, in a process of its own, and to read what that prints.
type Grader struct {
	// Spec is what the sandboxes are. It has no network, and neither a Name, Labels nor a Keep. A Compose project of
	// files is refused.
	Spec fumehood.Spec
	// Hidden are folders and files of this machine that only the grader sees. They are copied into its sandbox, whatever
	// Writable says, where none but the command's user may read them: folders of mode 0700, files of 0600 or 0700.
	Hidden []fumehood.Mount
	// Artifacts are what is carried there, in this order.
	Artifacts []Artifact
	// Cmd is the command. Its ViaEngine and output caps are the grader's to set. With a Timeout of 0 it has DefaultGraderTime.
	Cmd fumehood.Cmd
	// ByExitCode makes the score of the exit code: 1 for 0, and 0 for all other ends. Otherwise the command has to exit with 0,
	// and to print what Parse reads; what else it does is an error.
	ByExitCode bool
	// MaxBytes and MaxFiles bound all artifacts together. 0 means DefaultMaxBytes and DefaultMaxFiles.
	MaxBytes int64
	MaxFiles int
}

// DefaultGraderTime is how long a grader's command may take that does not say.
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
	case s.Compose != nil && (len(s.Compose.Files) > 0 || s.Compose.Egress != "" || s.Compose.AllowUnsafe):
		return errors.New("its sandbox is a Compose project, which a grader cannot have: give it an image or a Dockerfile")
	case s.Name != "" || s.Keep || len(s.Labels) > 0:
		return errors.New("its spec has a Name, Labels or a Keep, which are the grader's to set")
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
				return fmt.Errorf("the artifact %q is to be at %s, where %s is", a.Path, to, other)
			}
		}
		taken = append(taken, to)
	}
	return nil
}

// within reports whether a clean path is another or below it.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimRight(dir, "/")+"/")
}

// Sandbox is what the sandboxes are in which attempts are graded.
func (g *Grader) Sandbox() fumehood.Spec { return g.Spec }

// Score grades an attempt, as a task.Scorer. Its errors are *fumehood.Errors.
func (g *Grader) Score(ctx context.Context, a *task.Attempt) (score task.Score, err error) {
	if err := g.Validate(); err != nil {
		return task.Score{}, err
	}
	err = a.Beside(ctx, g.Sandbox(), func(ctx context.Context, sb fumehood.Sandbox) (err error) {
		score, err = g.grade(ctx, a, sb)
		return err
	})
	if err != nil {
		return task.Score{}, fmt.Errorf("grade: %w", err)
	}
	return score, nil
}

// grade carries the artifacts of an attempt to a sandbox, and scores them there.
func (g *Grader) grade(ctx context.Context, a *task.Attempt, sb fumehood.Sandbox) (task.Score, error) {
	if err := g.hide(ctx, sb); err != nil {
		return task.Score{}, err
	}
	left := &room{cmp.Or(g.MaxBytes, DefaultMaxBytes), cmp.Or(g.MaxFiles, DefaultMaxFiles)}
	for _, artifact := range g.Artifacts {
		err := artifact.carry(ctx, a.Sandbox, sb.ViaEngine(), left)
		switch {
		case err == nil:
		case !isUnfit(err):
			return task.Score{}, fmt.Errorf("carry the artifact %s: %w", quote(artifact.Path), err)
		case artifact.Optional && err.Error() == notThere:
		default:
			return task.Score{Reasons: []string{fmt.Sprintf("the artifact %s cannot be taken: %v", quote(artifact.Path), err)}}, nil
		}
	}
	return g.run(ctx, sb)
}

// run runs the command, and makes a score of how it ended.
func (g *Grader) run(ctx context.Context, sb fumehood.Sandbox) (task.Score, error) {
	cmd := g.Cmd
	cmd.ViaEngine, cmd.Grace, cmd.StdoutCap, cmd.StderrCap = true, fumehood.NoGrace, maxPrinted+1, maxPrinted
	if cmd.Timeout == 0 {
		cmd.Timeout = DefaultGraderTime
	}
	r, err := sb.Exec(ctx, cmd)
	if err != nil {
		return task.Score{}, err
	}
	fail := func(class error, format string, a ...any) error {
		why := fmt.Errorf("the grader's command "+format, a...)
		if text := strings.TrimSpace(r.Stderr.Text()); text != "" {
			why = fmt.Errorf("%w; the end of its standard error: %s", why, quote(text[max(0, len(text)-shown):]))
		}
		return &fumehood.Error{Class: class, Err: why}
	}
	switch {
	case r.Outcome == fumehood.Lost && r.CausedInside:
		return task.Score{Reasons: []string{"the grader's command " + ended(r)}}, nil
	case r.Outcome == fumehood.Lost:
		return task.Score{}, fail(fumehood.ErrUnavailable, "is lost: %s", cmp.Or(r.Reason, "how it ended is not known"))
	case g.ByExitCode && r.Success():
		return task.Score{Value: 1}, nil
	case g.ByExitCode:
		return task.Score{Reasons: []string{"the grader's command " + ended(r)}}, nil
	case r.Outcome == fumehood.TimedOut || r.Outcome == fumehood.OutOfMemory:
		// What it runs of the attempt's may have wanted that.
		return task.Score{Reasons: []string{"the grader's command " + ended(r)}}, nil
	case !r.Success() && (r.Usage.PIDsLimits > 0 || r.Usage.OOMKills > 0): // likewise
		return task.Score{Reasons: []string{"the grader's command " + ended(r) + ", and its sandbox had come to its limit of processes or of memory"}}, nil
	case !r.Success():
		return task.Score{}, fail(fumehood.ErrConfig, "%s, and not with 0", ended(r))
	}
	s, err := Parse(r.Stdout.Bytes)
	if r.Stdout.Truncated() {
		err = fmt.Errorf("it has %d bytes", r.Stdout.Total)
	}
	if err != nil {
		return task.Score{}, fail(fumehood.ErrConfig, "has printed no score: %v", err)
	}
	return s, nil
}

// shown is how much of a grader's standard error is in an error, in bytes.
const shown = 100
