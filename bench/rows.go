package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// row is one line of the table: something that is measured in a box. To add a row, add an entry to stepRows.
type row struct {
	name string
	// times is the number of turns of each contender in a round. The order is shuffled for each turn.
	times int
	// rounds is the number of rounds in which it is measured, from the first recorded one; 0 means all.
	rounds int
	// inARow is the number of measurements in one turn; 0 means one. Commands have several, since programs
	// run them one after another.
	inARow int
	// settle writes dirty pages to disk before a turn, so that no contender pays for the files of another.
	settle bool
	// topic is a text that -only matches too; empty for none.
	topic string
	// needs is the name of a row that must be measured before this one; empty means none.
	needs string
	// step does the work, checks that the contender has done it, and returns how long it took; 0 means the whole
	// call. A box that cannot do it returns errNotMeasured.
	step func(ctx context.Context, b box) (time.Duration, error)
}

// errNotMeasured leaves a cell empty.
var errNotMeasured = errors.New("not measured")

// The rows that every box goes through: the start, the first command, and the removal. coldStart is measured as a
// whole, and is the sum of the two rows before it.
const (
	createStart = "create + start"
	firstExec   = "first exec"
	coldStart   = "create + start + first exec"
	removal     = "remove"
)

// For rows with many commands in flight: the number of concurrent commands, and of all commands.
const (
	crowd     = 64
	crowdRuns = 512
)

// shellRuns is how often a shell runs the command in its loop.
const shellRuns = 20

// The rows of commands that shells inside the container run in a loop, without any reports to the host. They show how
// fast the machine starts and ends a program. Without them, times of two machines cannot be compared.
var (
	shellRow  = "true, in a shell's loop inside"
	shellsRow = fmt.Sprintf("%d, in %d shells inside", crowdRuns, crowd)
)

// crowdRow and echoRow have promises.
var crowdRow = fmt.Sprintf("%d commands, %d in flight", crowdRuns, crowd)

const echoRow = "a byte in, and back out"

// fileSize is the size of the file that is copied, in bytes.
const fileSize = 50 << 20

// stepRows returns the rows that are measured between the start and the removal, in this order.
func stepRows() []row {
	const file = "/fumehood-bench"
	content := make([]byte, fileSize)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // cannot fail; random, so that it cannot be compressed
	return []row{
		{name: execTrue, topic: byPython, times: 4, inARow: 10, step: func(ctx context.Context, b box) (time.Duration, error) {
			return 0, command(ctx, b, 0, "true")
		}},
		{name: "exec, 1 KiB of output", times: 2, inARow: 10, step: func(ctx context.Context, b box) (time.Duration, error) {
			return 0, command(ctx, b, 1<<10, "head", "-c", "1024", "/dev/zero")
		}},
		{name: shellRow, times: 2, step: func(ctx context.Context, b box) (time.Duration, error) {
			return inShells(ctx, b, 1, shellRuns, shellRuns)
		}},
		{name: crowdRow, topic: byPython, times: 1, step: func(ctx context.Context, b box) (time.Duration, error) {
			return 0, many(ctx, b)
		}},
		{name: shellsRow, times: 1, step: func(ctx context.Context, b box) (time.Duration, error) {
			return inShells(ctx, b, crowd, crowdRuns/crowd, 1)
		}},
		{name: echoRow, times: 5, step: func(ctx context.Context, b box) (time.Duration, error) {
			if e, ok := b.(echoer); ok {
				return e.echo(ctx)
			}
			return 0, errNotMeasured
		}},
		{name: writeRow, topic: byPython, times: 1, settle: true, step: func(ctx context.Context, b box) (time.Duration, error) {
			return 0, b.write(ctx, file, content)
		}},
		{name: readRow, topic: byPython, times: 1, settle: true, needs: writeRow, step: func(ctx context.Context, b box) (time.Duration, error) {
			return 0, b.read(ctx, file, fileSize)
		}},
	}
}

// More rows with promises.
const (
	execTrue = "exec true"
	writeRow = "write 50 MiB"
	readRow  = "read 50 MiB"
)

// many runs crowdRuns commands, crowd at once. Only boxes of Fumehood are measured, since with execs of the Engine it
// would take most of a minute.
func many(ctx context.Context, b box) error {
	if p, ok := b.(pythonBox); ok {
		return p.crowd(ctx)
	}
	if _, ok := b.(oursBox); !ok {
		return errNotMeasured
	}
	return crowdOf(crowd, crowdRuns, func() error { return command(ctx, b, 0, "true") })
}

// crowdOf calls f times times in goroutines, atOnce at once. A goroutine ends after an error.
func crowdOf(atOnce, times int, f func() error) error {
	tokens := make(chan struct{}, times)
	for range times {
		tokens <- struct{}{}
	}
	close(tokens)
	errs := make([]error, atOnce)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for range tokens {
				if errs[i] = f(); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// inShells runs true times times in each of shells concurrent shells, and returns the time divided by by. It is
// measured only in the first contender's container, because only the start of the first shell depends on the
// contender.
func inShells(ctx context.Context, b box, shells, times, by int) (time.Duration, error) {
	if own, ok := b.(oursBox); !ok || own.contender.called != byFumehood {
		return 0, errNotMeasured
	}
	// Use the program's path, because shells may have a built-in true.
	const script = `program=$(which true) || echo none; s=0
while [ $s -lt $1 ]; do
	s=$((s + 1))
	(i=0; while [ $i -lt $2 ]; do "$program" || echo failed; i=$((i + 1)); done) &
done
wait`
	begin := time.Now()
	err := command(ctx, b, 0, "sh", "-c", script, "sh", strconv.Itoa(shells), strconv.Itoa(times))
	return time.Since(begin) / time.Duration(by), err
}

// command runs a command whose output must have the given number of bytes.
func command(ctx context.Context, b box, output int64, args ...string) error {
	got, err := b.exec(ctx, args...)
	if err != nil {
		return err
	}
	return wantSize(got, output)
}

// selectRows returns the steps to take and the names of the rows to show for a pattern of names and topics. A row
// that a shown row needs is shown too.
func selectRows(all []row, only *regexp.Regexp) (steps []row, shown []string) {
	needed := map[string]bool{}
	matches := func(r row) bool { return only.MatchString(r.name) || r.topic != "" && only.MatchString(r.topic) }
	for _, r := range all {
		needed[r.needs] = needed[r.needs] || matches(r)
	}
	for _, name := range []string{createStart, firstExec, coldStart} {
		if only.MatchString(name) {
			shown = append(shown, name)
		}
	}
	for _, r := range all {
		if matches(r) || needed[r.name] {
			steps, shown = append(steps, r), append(shown, r.name)
		}
	}
	if only.MatchString(removal) {
		shown = append(shown, removal)
	}
	return steps, shown
}
