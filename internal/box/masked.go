package box

import (
	"errors"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/image"
)

// MaskError returns an error in which the values of this process's variables that a project sees are replaced by their
// names. They may be in a Dockerfile, in the output of a build, or in the name of an image. The project may be nil.
func MaskError(project *fumehood.Compose, err error) error {
	if project == nil || len(project.HostEnv) == 0 || err == nil {
		return err
	}
	mask := func(text string) string { return image.Mask(project.HostEnv, text) }
	if known, ok := err.(*fumehood.Error); ok { //nolint:errorlint // inner ones keep their place
		e := *known
		e.Op, e.Path, e.Hint, e.Err = mask(e.Op), mask(e.Path), mask(e.Hint), MaskError(project, e.Err)
		return &e
	}
	if text := mask(err.Error()); text != err.Error() {
		return &maskedError{text, err}
	}
	return err
}

// maskedError has another text than the error it stands for, which it does not unwrap.
type maskedError struct {
	text  string
	owner error
}

func (e *maskedError) Error() string { return e.text }

// Is reports whether the error it stands for is of a class.
func (e *maskedError) Is(target error) bool { return errors.Is(e.owner, target) }
