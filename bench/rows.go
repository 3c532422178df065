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

// row is one line of the table: something that is measured in a box. A new row is an entry in stepRows.
type row struct {
	name string
	// times is how many turns each contender has in a round, in an order of its own each time.
	times int
	// rounds is in how many rounds it is measured, from the first recorded one on; 0 means in all.
	rounds int
	// inARow is how often it is measured in one turn; 0 means once. Commands come one after the other.
	inARow int
	// settle writes what is dirty back before a turn, so that nobody pays for another's files.
	settle bool
	// needs names a row that has to be measured before this one; empty means none.
	needs string
	// step does what is measured, checks that the contender has done the work, and returns how long it took;
	// 0 means all of it. A box that cannot do it returns errNotMeasured.
	step func(ctx context.Context, b box) (time.Duration, error)
}

// errNotMeasured leaves a cell empty.
var errNotMeasured = errors.New("not measured")

// The rows that every box goes through: one start and first command, and one removal. coldStart is
// measured as a whole, and is the sum of the two before it.
const (
	createStart = "create + start"
	firstExec   = "first exec"
	coldStart   = "create + start + first exec"
	removal     = "remove"
)

// Where many commands are in flight: so many at once, and so many in all.
const (
	crowd     = 64
	crowdRuns = 512
)

// shellRuns is how often a shell runs the command in its loop.
const shellRuns = 20

// The rows of commands that shells inside the container run in a loop, with nobody to tell: how fast the machine starts
// and ends a program. Times of two machines cannot be compared without them.
var (
	shellRow  = "true, in a shell's loop inside"
	shellsRow = fmt.Sprintf("%d, in %d shells inside", crowdRuns, crowd)
)

// crowdRow and echoRow have promises.
var crowdRow = fmt.Sprintf("%d commands, %d in flight", crowdRuns, crowd)

const echoRow = "a byte in, and back out"

// fileSize is the size of the file that is copied, in bytes.
const fileSize = 50 << 20

// stepRows are measured between the start and the removal, in this order.
func stepRows() []row {
	const file = "/fumehood-bench"
	content := make([]byte, fileSize)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // cannot fail; random, so that nothing can compress it
	return []row{
		{name: execTrue, times: 2, inARow: 10, step: func(ctx context.Context, b box) (time.Duration, error) {
			return 0, command(ctx, b, 0, "true")
		}},
		{name: "exec, 1 KiB of output", times: 2, inARow: 10, step: func(ctx context.Context, b box) (time.Duration, error) {
			return 0, command(ctx, b, 1<<10, "head", "-c", "1024", "/dev/zero")
		}},
		{name: shellRow, times: 2, step: func(ctx context.Context, b box) (time.Duration, error) {
			return inShells(ctx, b, 1, shellRuns, shellRuns)
		}},
		{name: crowdRow, times: 1, step: func(ctx context.Context, b box) (time.Duration, error) { return 0, many(ctx, b) }},
		{name: shellsRow, times: 1, step: func(ctx context.Context, b box) (time.Duration, error) {
			return inShells(ctx, b, crowd, crowdRuns/crowd, 1)
		}},
		{name: echoRow, times: 5, step: func(ctx context.Context, b box) (time.Duration, error) {
			if e, ok := b.(echoer); ok {
				return e.echo(ctx)
			}
			return 0, errNotMeasured
		}},
		{name: writeRow, times: 1, settle: true, step: func(ctx context.Context, b box) (time.Duration, error) {
			return 0, b.write(ctx, file, content)
		}},
		{name: readRow, times: 1, settle: true, needs: writeRow, step: func(ctx context.Context, b box) (time.Duration, error) {
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

// many runs crowdRuns commands, crowd at once. By an exec of the Engine that takes most of a minute.
func many(ctx context.Context, b box) error {
	if _, ok := b.(oursBox); !ok {
		return errNotMeasured
	}
	tokens := make(chan struct{}, crowdRuns)
	for range crowdRuns {
		tokens <- struct{}{}
	}
	close(tokens)
	errs := make([]error, crowd)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for range tokens {
				if err := command(ctx, b, 0, "true"); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// inShells has so many shells at once run true so many times each, and returns how long that took, divided. It is
// measured in the first contender's container, for nothing of a contender is in it but the start of a first shell.
func inShells(ctx context.Context, b box, shells, times, by int) (time.Duration, error) {
	if ours, ok := b.(oursBox); !ok || ours.of.called != byFumehood {
		return 0, errNotMeasured
	}
	// By its path, for shells may have a true of their own.
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

// command runs a command that has to write so many bytes.
func command(ctx context.Context, b box, output int64, args ...string) error {
	got, err := b.exec(ctx, args...)
	if err != nil {
		return err
	}
	return wantSize(got, output)
}

// selectRows returns the steps to take and the names of the rows to show for a pattern; what a shown row
// needs is shown too.
func selectRows(all []row, only *regexp.Regexp) (steps []row, shown []string) {
	needed := map[string]bool{}
	for _, r := range all {
		needed[r.needs] = needed[r.needs] || only.MatchString(r.name)
	}
	for _, name := range []string{createStart, firstExec, coldStart} {
		if only.MatchString(name) {
			shown = append(shown, name)
		}
	}
	for _, r := range all {
		if only.MatchString(r.name) || needed[r.name] {
			steps, shown = append(steps, r), append(shown, r.name)
		}
	}
	if only.MatchString(removal) {
		shown = append(shown, removal)
	}
	return steps, shown
}
