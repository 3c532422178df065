package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"time"
)

// stepTimeout limits one step of one contender.
const stepTimeout = 5 * time.Minute

// rounds runs one warm-up round that is not recorded, and then n rounds.
func rounds(ctx context.Context, n int, contenders []contender, steps []row, rnd *rand.Rand, rec *recorder) error {
	progress, done := progressLine(n)
	defer done()
	for i := range n + 1 {
		progress(i)
		r := round{number: i, contenders: contenders, boxes: make([]box, len(contenders)), rnd: rnd, rec: rec}
		if err := r.run(ctx, steps); err != nil {
			return err
		}
	}
	return nil
}

// round uses one container for each contender, from its start to its removal. After an error it leaves the containers
// to contender.close.
type round struct {
	number     int
	contenders []contender
	boxes      []box // by contender
	rnd        *rand.Rand
	rec        *recorder
}

func (r *round) run(ctx context.Context, steps []row) error {
	if err := r.each(ctx, coldStart, r.cold); err != nil {
		return err
	}
	for _, step := range steps {
		if step.rounds > 0 && (r.number == 0 || r.number > step.rounds) {
			continue
		}
		for range step.times {
			if err := r.each(ctx, step.name, func(ctx context.Context, i int) error { return r.turn(ctx, step, i) }); err != nil {
				return err
			}
		}
	}
	return r.each(ctx, removal, func(ctx context.Context, i int) error {
		begin := time.Now()
		err := r.boxes[i].remove(ctx)
		if errors.Is(err, errNotMeasured) {
			return nil
		}
		r.record(removal, i, since(r.boxes[i], begin))
		return err
	})
}

// turn measures a step of contender i, as often in a row as the row requires.
func (r *round) turn(ctx context.Context, step row, i int) error {
	if step.settle {
		writeBack()
	}
	for range max(step.inARow, 1) {
		begin := time.Now()
		took, err := step.step(ctx, r.boxes[i])
		switch {
		case errors.Is(err, errNotMeasured):
			return nil
		case took == 0:
			took = since(r.boxes[i], begin)
		}
		r.record(step.name, i, took)
		if err != nil {
			return err
		}
	}
	return nil
}

// each lets all contenders take a step, in random order. Ctrl-C does not interrupt a step that has started: the
// Engine would go on with it during the cleanup.
func (r *round) each(ctx context.Context, name string, step func(ctx context.Context, i int) error) error {
	for _, i := range r.rnd.Perm(len(r.contenders)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		runtime.GC() // so that no contender pays for the garbage of another
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
		err := step(sctx, i)
		cancel()
		if err != nil {
			return fmt.Errorf("%s by %s: %w", name, r.contenders[i].name(), err)
		}
	}
	return nil
}

// cold measures contender i from the start of its container to the end of the first command.
func (r *round) cold(ctx context.Context, i int) (err error) {
	begin := time.Now()
	if r.boxes[i], err = r.contenders[i].start(ctx); err != nil {
		return err
	}
	created, began := since(r.boxes[i], begin), time.Now()
	if err := command(ctx, r.boxes[i], 0, "true"); errors.Is(err, errNotMeasured) {
		return nil
	} else if err != nil {
		return err
	}
	first := since(r.boxes[i], began)
	r.record(createStart, i, created)
	r.record(firstExec, i, first)
	r.record(coldStart, i, created+first)
	return nil
}

func (r *round) record(name string, i int, took time.Duration) {
	if r.number > 0 {
		r.rec.add(sample{Row: name, Contender: r.contenders[i].name(), Took: took})
	}
}

// progressLine returns functions that show the progress on a terminal; without a terminal they do nothing.
func progressLine(rounds int) (tell func(round int), done func()) {
	info, err := os.Stderr.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func(int) {}, func() {}
	}
	tell = func(round int) { fmt.Fprintf(os.Stderr, "\rround %d of %d ", round, rounds) }
	return tell, func() { fmt.Fprint(os.Stderr, "\r\x1b[K") }
}
