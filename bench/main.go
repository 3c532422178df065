// Command bench measures what a sandbox costs, compared with the bare Engine API and the docker command line. It
// measures all of them in one run, so that ratios are comparable where times are not.
//
// In each round all contenders take each step in turn, in an order that is shuffled for each step. So other load on
// the machine affects all of them alike. The table goes to standard output. The single samples and the facts of the
// machine go to a file in -out, in the Go benchmark format, for benchstat.
//
//	go run ./bench [-rounds 30] [-image fumehood-test/busybox] [-only regexp] [-out bench-results] [-check]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"

	"github.com/fumehood/fumehood/provider/docker"
)

// seed makes the shuffling and the other random draws repeatable.
const seed = 1

type options struct {
	rounds     int
	image, out string
	only       *regexp.Regexp
	check      bool
	hold       int
	density    []int // numbers of sandboxes
}

func main() {
	docker.RunReaper()
	opts := options{only: regexp.MustCompile("")}
	flag.IntVar(&opts.rounds, "rounds", 30, "number of rounds to measure, after one warm-up round")
	flag.StringVar(&opts.image, "image", "fumehood-test/busybox", "image of the containers; it needs true, head, tail, sh and which")
	flag.StringVar(&opts.out, "out", "bench-results", "folder for the samples")
	const only = "measure only the rows that match this `regexp`; python are all rows of the Python client"
	flag.Func("only", only, func(s string) (err error) {
		opts.only, err = regexp.Compile(s)
		return err
	})
	flag.BoolVar(&opts.check, "check", false, "exit with code 1 when a promise is not kept")
	flag.IntVar(&opts.hold, "hold", 0, "only start this `number` of sandboxes and hold them until stdin closes")
	flag.Func("density", "only measure what it costs to hold these `numbers` of sandboxes at once, such as 50,200,800,2000,4000, with native and docker (up to 200)", func(s string) (err error) {
		opts.density, err = parseNumbers(s)
		return err
	})
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the cleanup
	var err error
	switch {
	case opts.hold > 0:
		err = hold(ctx, opts.hold, opts.image)
	case len(opts.density) > 0:
		err = densities(ctx, opts.image, opts.density, os.Stdout)
	default:
		err = run(ctx, opts)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts options) (err error) {
	steps, shown := selectRows(slices.Concat(stepRows(), projectRows(), processRows(), sampleRows()), opts.only)
	if len(shown) == 0 && !memoryShown(opts.only) && !opts.only.MatchString(footprintRow) {
		return fmt.Errorf("no row matches %v", opts.only)
	}
	contenders, missing, err := newContenders(ctx, opts.image)
	defer func() {
		for _, c := range contenders { // Fumehood's first: see bareContender.close
			cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
			err = errors.Join(err, c.close(cctx))
			cancel()
		}
	}()
	if err != nil {
		return err
	}
	facts, err := learnFacts(ctx, opts, contenders)
	if err != nil {
		return err
	}
	rec, err := newRecorder(opts.out, facts)
	if err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	var failure error
	if len(shown) > 0 {
		failure = rounds(ctx, opts.rounds, contenders, steps, rnd, rec)
	}
	if err := rec.close(); err != nil {
		return errors.Join(failure, err)
	}
	facts.LoadAfter = load()
	rep := report{facts: facts, rows: shown, missing: missing, samples: rec.samples, file: rec.path}
	for _, c := range contenders {
		rep.contenders = append(rep.contenders, c.name())
		if own, ok := c.(*oursContender); ok && c.name() == byFumehood {
			rep.shares = shares(own.spent)
		}
		if python, ok := c.(*pythonContender); ok && failure == nil && memoryShown(opts.only) {
			rep.memory, failure = python.memory(ctx)
		}
	}
	if failure == nil {
		rep.footprints, failure = footprints(ctx, contenders, opts.only)
	}
	if failure == nil || len(rec.samples) > 0 {
		rep.print(os.Stdout)
	}
	if failure != nil {
		return failure
	}
	if broken := rep.countBroken(); opts.check && broken > 0 {
		return fmt.Errorf("%d promises are not kept", broken)
	}
	return nil
}
