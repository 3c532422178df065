package cli

import (
	"errors"
	"fmt"
)

// outputError returns an error for a failed write of our own output.
func outputError(err error) error {
	var known *exitError
	if errors.As(err, &known) {
		return err
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("write output: %w", err)}
}
