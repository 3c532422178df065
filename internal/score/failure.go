package score

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

// failure is the error of a grader's command that gave no score. An attempt whose artifacts it got may have caused it.
type failure struct {
	how string // how it ended, equal for failures of the same kind
	error
}

func (f *failure) Unwrap() error { return f.error }

// empties has how a grader's command ended for empty artifacts. It is filled when it is needed.
type empties struct {
	mu sync.Mutex
	// how has an element for each combination of files and folders, see emptied; "" means that there was a score.
	how []string
}

// mostKinds is the number of artifacts of which empty files and empty folders are tried in all combinations. Further ones
// are files.
const mostKinds = 4

// blame returns a score of 0 for a failure that the attempt has caused, and the error of one that is the grader's own: its
// command fails in the same way for empty artifacts, whether these are files or folders.
func (g *Grader) blame(ctx context.Context, a *task.Attempt, f *failure) (task.Score, error) {
	g.empty.mu.Lock()
	defer g.empty.mu.Unlock()
	for kinds := range 1 << min(len(g.Artifacts), mostKinds) {
		if kinds == len(g.empty.how) {
			how, err := g.gradeEmpty(ctx, a, kinds)
			if err != nil {
				return task.Score{}, fmt.Errorf("grade empty artifacts: %w", err)
			}
			g.empty.how = append(g.empty.how, how)
		}
		if g.empty.how[kinds] != f.how {
			return task.Score{Reasons: []string{f.Error()}}, nil
		}
	}
	return task.Score{}, &fumehood.Error{
		Op: "run command", Class: fumehood.ClassOf(f), Err: f.error,
		Hint: "it ends so for empty artifacts too: let it print a score for everything that it gets",
	}
}

// gradeEmpty returns how the command ends for empty artifacts. Bit i of kinds makes artifact i a folder.
func (g *Grader) gradeEmpty(ctx context.Context, a *task.Attempt, kinds int) (how string, err error) {
	err = a.Beside(ctx, g.Sandbox(), func(ctx context.Context, sb fumehood.Sandbox) error {
		if err := g.hide(ctx, sb); err != nil {
			return err
		}
		for i, artifact := range g.Artifacts {
			head := entry(tar.TypeReg, "", 0o644, 0)
			if kinds>>i&1 == 1 {
				head = entry(tar.TypeDir, "", 0o755, 0)
			}
			if err := putEmpty(ctx, sb.ViaEngine(), artifact.to(), head); err != nil {
				return fmt.Errorf("copy an empty artifact %s: %w", quote(artifact.Path), err)
			}
		}
		step, err := g.runGrader(ctx, sb)
		if err != nil {
			return err
		}
		_, err = g.scoreOf(step.Result)
		return err
	})
	if f, ok := errors.AsType[*failure](err); ok {
		return f.how, nil
	}
	return "", err
}

// putEmpty creates an empty file or folder in a service, as head describes it, with the folders above it.
func putEmpty(ctx context.Context, svc fumehood.Service, to string, head *tar.Header) error {
	return upload(ctx, svc, "", to, func(w io.Writer, _ string, missing []string, name string) error {
		tw, err := begin(w, missing)
		if err != nil {
			return err
		}
		head.Name = name
		if head.Typeflag == tar.TypeDir {
			head.Name += "/"
		}
		if err := tw.WriteHeader(head); err != nil {
			return err
		}
		return tw.Close()
	})
}
