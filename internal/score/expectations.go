package score

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

// Expectations returns a scorer that checks the steps of attempts. ByStep has the expectations of steps by name. Last
// applies to the last step, if it has no other problem. Nil expects nothing. Files are checked at the end of the
// attempt. The score is 1 if everything is as expected, else 0 with the differences as reasons. An attempt
// without steps, or with a step whose end is unknown, has no score but an error.
func Expectations(last *Expect, byStep map[string]*Expect) task.Scorer {
	return func(ctx context.Context, a *task.Attempt) (task.Score, error) {
		if len(a.Steps) == 0 {
			return task.Score{}, &fumehood.Error{Op: "score", Class: fumehood.ErrConfig, Err: errors.New("the attempt has no steps")}
		}
		var all []string
		for i, step := range a.Steps {
			reasons, err := byStep[step.Name].of(ctx, a.Sandbox, step.Result)
			if err == nil && len(reasons) == 0 && i == len(a.Steps)-1 {
				reasons, err = last.of(ctx, a.Sandbox, step.Result)
			}
			if err != nil {
				return task.Score{}, fmt.Errorf("step %s: %w", quote(step.Name), err)
			}
			for _, why := range reasons {
				all = append(all, fmt.Sprintf("step %s: %s", step.Name, why))
			}
		}
		if len(all) > 0 {
			return task.Score{Reasons: all}, nil
		}
		return task.Score{Value: 1}, nil
	}
}

// of returns the differences of a command and of the files from the expectations.
func (e *Expect) of(ctx context.Context, sb fumehood.Sandbox, r *fumehood.Result) ([]string, error) {
	if e == nil {
		return nil, nil
	}
	reasons, err := e.Check(ctx, r)
	if err != nil {
		return nil, err
	}
	more, err := e.CheckFiles(ctx, sb)
	return append(reasons, more...), err
}

// CheckFiles returns, as text for people, the differences between the files in a sandbox and the expectations. It
// reads them without help from processes in the sandbox. An error means that the infrastructure failed.
func (e *Expect) CheckFiles(ctx context.Context, sb fumehood.Sandbox) (reasons []string, err error) {
	for _, key := range slices.Sorted(maps.Keys(e.Files)) {
		svc, name, err := lookup(sb, key)
		if err != nil {
			return nil, err
		}
		why, err := e.Files[key].check(ctx, svc, name)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", quote(key), err)
		}
		for _, w := range why {
			reasons = append(reasons, fmt.Sprintf("the file %s %s", quote(key), w))
		}
	}
	return reasons, nil
}

// check returns what is wrong with a file, as phrases after its name.
func (f *File) check(ctx context.Context, svc fumehood.Service, name string) ([]string, error) {
	if f != nil && f.Absent {
		_, err := svc.Stat(ctx, name)
		switch {
		case err == nil:
			return []string{"is there, and was expected not to be"}, nil
		case absent(err):
			return nil, nil
		case unreadable(err):
			return []string{"cannot be looked for: " + quote(err.Error())}, nil
		}
		return nil, err
	}
	content, err := readFile(ctx, svc, name)
	var u *unfit
	switch {
	case errors.As(err, &u):
		return []string{"cannot be read: " + u.why}, nil
	case err != nil || f == nil:
		return nil, err
	}
	return f.Text.check(ctx, content)
}

// readFile reads a regular file of at most maxFile bytes from an untrusted service.
func readFile(ctx context.Context, svc fumehood.Service, name string) (content []byte, err error) {
	err = steadily(ctx, func() error {
		content, err = readOnce(ctx, svc, name)
		return err
	})
	return content, err
}

func readOnce(ctx context.Context, svc fumehood.Service, name string) ([]byte, error) {
	r, err := download(ctx, svc, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var content bytes.Buffer
	err = eachEntry(r, &room{maxFile, 1}, func(_ string, head *tar.Header, r io.Reader) error {
		if head.Typeflag == tar.TypeDir {
			return &unfit{"it is a folder"}
		}
		_, err := io.Copy(&content, r)
		return err
	})
	return content.Bytes(), err
}
