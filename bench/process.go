package main

import (
	"context"
	"fmt"
	"time"
)

// The rows of whole processes of the command line. Those of exec, cp, up and down are the columns of the contenders
// that are command lines. helpRow, versionRow and psRow are the arguments of the command too.
const (
	runRow     = "run true, one process"
	helpRow    = "help"
	versionRow = "version"
	psRow      = "ps"
)

// The rows of a new Python client, to the result of a first command. Cold, there is no server yet, and it is compared
// with a container of `docker run`; what removes the container is not measured. Warm, there is a server that has a kept
// sandbox.
const (
	coldResult = "python: first result, cold"
	warmResult = "python: first result, warm"
)

// For the row with many runs, and for the row of a list of many sandboxes.
const (
	runs       = 40
	runsAtOnce = 8
	psMany     = 100
)

var (
	runsRow   = fmt.Sprintf("%d runs, %d at once", runs, runsAtOnce)
	psManyRow = fmt.Sprintf("ps with %d sandboxes", psMany)
)

// processor is implemented by boxes of command lines and of the Python client. process measures a row of processRows
// and returns how long it took.
type processor interface {
	process(ctx context.Context, row string) (time.Duration, error)
}

// processRows returns the rows about whole processes.
func processRows() []row {
	rowOf := func(name string, times, inARow, rounds int) row {
		return row{name: name, times: times, inARow: inARow, rounds: rounds, step: func(ctx context.Context, b box) (time.Duration, error) {
			if p, ok := b.(processor); ok {
				return p.process(ctx, name)
			}
			return 0, errNotMeasured
		}}
	}
	return []row{
		rowOf(helpRow, 1, 3, 0), rowOf(versionRow, 1, 3, 0), rowOf(psRow, 1, 3, 0), rowOf(runRow, 2, 1, 0),
		rowOf(coldResult, 1, 1, 0), rowOf(warmResult, 1, 5, 0),
		rowOf(runsRow, 1, 1, sampleRounds), rowOf(psManyRow, 1, 1, 1),
	}
}

// timeCall returns how long f took.
func timeCall(f func() error) (time.Duration, error) {
	begin := time.Now()
	err := f()
	return time.Since(begin), err
}
