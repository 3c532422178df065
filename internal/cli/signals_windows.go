package cli

import (
	"os"
	"syscall"
)

var endingSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// brokenPipe is no signal here.
var brokenPipe os.Signal
