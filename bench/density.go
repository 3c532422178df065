package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/native"
)

// mostOfDocker is the highest number of sandboxes that are held with the docker provider.
const mostOfDocker = 200

const (
	densitySingle   = 500  // commands one after another
	densityTogether = 2000 // commands, densityFlight at a time
	densityFlight   = 64
	densityRest     = 3 * time.Second // after the starts, before anything is measured
)

// density is what it costs to hold many sandboxes at once. It means something on an idle machine only.
type density struct {
	contender      string
	sandboxes      int
	starts         float64 // for each second, two for each processor at a time
	commands       float64 // for each second, densityFlight at a time
	half, last     time.Duration
	threads, bytes float64 // for each sandbox, of the whole machine
	closing        time.Duration
}

const densityHead = "| provider | sandboxes | starts/s | commands/s | `true` p50, ms | p99, ms | threads each | MiB each | close, s |\n|---|---|---|---|---|---|---|---|---|\n"

func (d density) String() string {
	ms := func(t time.Duration) float64 { return float64(t) / float64(time.Millisecond) }
	return fmt.Sprintf("| %s | %d | %.0f | %.0f | %.2f | %.2f | %.1f | %.2f | %.1f |", d.contender, d.sandboxes, d.starts, d.commands, ms(d.half), ms(d.last), d.threads, d.bytes/(1<<20), d.closing.Seconds())
}

// densities measures numbers of sandboxes with each provider, and prints a table.
func densities(ctx context.Context, image string, numbers []int, w io.Writer) error {
	fmt.Fprint(w, densityHead)
	open := map[string]func() (fumehood.Provider, error){
		"native": func() (fumehood.Provider, error) { return native.New(ctx, native.Options{}) },
		"docker": func() (fumehood.Provider, error) { return docker.New(ctx, docker.Options{}) },
	}
	for _, name := range []string{"native", "docker"} {
		for _, n := range numbers {
			if name == "docker" && n > mostOfDocker {
				continue
			}
			p, err := open[name]()
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
				break
			}
			d, err := measureDensity(ctx, p, image, n)
			if err := errors.Join(err, p.Close(context.WithoutCancel(ctx))); err != nil {
				return fmt.Errorf("%d sandboxes with %s: %w", n, name, err)
			}
			d.contender = name
			fmt.Fprintln(w, d)
		}
	}
	return nil
}

func measureDensity(ctx context.Context, p fumehood.Provider, image string, n int) (d density, err error) {
	d.sandboxes = n
	threads, available := machineState()
	boxes := make([]fumehood.Sandbox, n)
	begun := time.Now()
	err = inParallel(2*runtime.NumCPU(), n, func(i int) (err error) {
		boxes[i], err = p.Start(ctx, fumehood.Spec{Image: image})
		return err
	})
	d.starts = float64(n) / time.Since(begun).Seconds()
	defer func() {
		begun := time.Now()
		cerr := inParallel(2*runtime.NumCPU(), n, func(i int) error {
			if boxes[i] == nil {
				return nil
			}
			return boxes[i].Close(context.WithoutCancel(ctx))
		})
		d.closing = time.Since(begun)
		err = errors.Join(err, cerr)
	}()
	if err != nil {
		return d, err
	}
	run := func(int) error {
		res, err := boxes[rand.IntN(n)].Exec(ctx, fumehood.Cmd{Args: []string{"true"}}) //nolint:gosec // a benchmark
		if err == nil && !res.Success() {
			err = fmt.Errorf("true: %s %s", res.Outcome, res.Reason)
		}
		return err
	}
	select {
	case <-time.After(densityRest):
	case <-ctx.Done():
		return d, ctx.Err()
	}
	nowThreads, nowAvailable := machineState()
	d.threads, d.bytes = float64(nowThreads-threads)/float64(n), float64(available-nowAvailable)/float64(n)
	times := make([]time.Duration, densitySingle)
	for i := range times {
		begun := time.Now()
		if err := run(i); err != nil {
			return d, err
		}
		times[i] = time.Since(begun)
	}
	slices.Sort(times)
	d.half, d.last = times[len(times)/2], times[len(times)*99/100]
	begun = time.Now()
	err = inParallel(densityFlight, densityTogether, run)
	d.commands = densityTogether / time.Since(begun).Seconds()
	return d, err
}

// inParallel calls f for each number below n, at most a few at a time.
func inParallel(most, n int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(most)
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}

// machineState returns the number of threads of this machine, and the bytes of memory that are available. They are 0 where
// there is no /proc.
func machineState() (threads, available int64) {
	text, _ := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); len(fields) > 3 {
		_, all, _ := strings.Cut(fields[3], "/")
		threads, _ = strconv.ParseInt(all, 10, 64)
	}
	text, _ = os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			available, _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return threads, available << 10
}

// parseNumbers reads numbers that are separated by commas.
func parseNumbers(text string) (numbers []int, err error) {
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number of sandboxes", one)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
