//go:build unix

package cli

import (
	"errors"
	"fmt"
	"syscall"
)

// outputError says that our own output could not be written. A reader that went away (`| head`) is no
// failure to speak of: like any other program in a pipe we end with 128 plus SIGPIPE's number.
func outputError(err error) error {
	var known *exitError
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, syscall.EPIPE) {
		return &exitError{code: exitSignal + int(syscall.SIGPIPE)}
	}
	return &exitError{code: exitFailure, err: fmt.Errorf("write output: %w", err)}
}
