//go:build unix

package cli

import (
	"os"
	"syscall"
)

var endingSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE}

var brokenPipe os.Signal = syscall.SIGPIPE
