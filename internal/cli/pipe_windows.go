package cli

import (
	"errors"
	"fmt"
)

// outputError says that our own output could not be written.
func outputError(err error) error {
	var known *exitError
	if errors.As(err, &known) {
		return err
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("write output: %w", err)}
}
