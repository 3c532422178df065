package cli

import (
	"os"
	"syscall"
)

var endingSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// brokenPipe is nil: Windows has no such signal.
var brokenPipe os.Signal
