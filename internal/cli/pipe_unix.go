//go:build unix

package cli

import (
	"errors"
	"fmt"
	"syscall"
)

// outputError returns an error for a failed write of our own output. If the reader has closed the pipe (`| head`),
// the error has no message and the exit code is 128 plus SIGPIPE's number, as for other programs in a pipe.
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
