package box

import (
	"bytes"
	"context"
	"errors"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/provider"
)

// Output sends the output of the service's own program in a kept sandbox to out. Its guest keeps the last MiB of each of
// the two outputs, in which Tail counts lines. A warning says how much is not kept any more.
func (s *Service) Output(ctx context.Context, opts provider.LogOptions, out provider.Sink) error {
	defer context.AfterFunc(ctx, s.Guests.Close)()
	l := &logReader{program: s.Guests.Program, out: out, at: map[fumehood.Stream]int64{}, end: map[fumehood.Stream]int64{}}
	l.gap = func(stream fumehood.Stream, bytes int64) {
		s.Guests.cfg.Log.Warn("a part of a log is not kept any more", "service", s.Info.Name, "stream", stream, "bytes", bytes)
	}
	if err := l.read(ctx, opts); err != nil {
		return s.Guests.Explain(ctx, err)
	}
	return nil
}

// logReader reads the output of a service's own program.
type logReader struct {
	program func(ctx context.Context, follow bool, out provider.Sink) (provider.DetachedBackend, error) // see Guests
	out     provider.Sink
	gap     func(s fumehood.Stream, bytes int64)
	// at is the next byte of each stream. What comes before end was delivered by an earlier reading.
	at, end map[fumehood.Stream]int64
}

// read delivers the output.
func (l *logReader) read(ctx context.Context, opts provider.LogOptions) error {
	if opts.Tail > 0 {
		kept, out, gap := map[fumehood.Stream]*ring.Tail{fumehood.Stdout: ring.NewTail(logSize), fumehood.Stderr: ring.NewTail(logSize)}, l.out, l.gap
		gaps := map[fumehood.Stream]int64{}
		l.out = func(s fumehood.Stream, p []byte) { _, _ = kept[s].Write(p) }
		l.gap = func(s fumehood.Stream, n int64) { gaps[s] = n }
		if err := l.watch(ctx, false); err != nil {
			return err
		}
		l.gap = gap
		for s, tail := range kept {
			all, _ := tail.Bytes()
			p := lastLines(all, opts.Tail)
			if gaps[s] > 0 && len(p) == len(all) {
				gap(s, gaps[s])
			}
			if len(p) > 0 {
				out(s, p)
			}
		}
		if !opts.Follow {
			return nil
		}
		l.out, l.at, l.end = out, map[fumehood.Stream]int64{}, l.at
	}
	return l.watch(ctx, opts.Follow)
}

// watch reads the output so far; with follow, until the program's end.
func (l *logReader) watch(ctx context.Context, follow bool) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	delivered := map[fumehood.Stream]int64{}
	p, err := l.program(ctx, follow, func(s fumehood.Stream, p []byte) {
		known := min(max(l.end[s]-l.at[s], 0), int64(len(p)))
		l.at[s] += int64(len(p))
		if delivered[s] += int64(len(p)); !follow && delivered[s] > logSize {
			stop(&fumehood.Error{Class: fumehood.ErrBroken, Err: errors.New("the guest sends more than it keeps")})
			return
		}
		if p = p[known:]; len(p) > 0 {
			l.out(s, p)
		}
	})
	if err != nil {
		return err
	}
	p.OnGap(func(s fumehood.Stream, n int64) {
		if l.at[s] += n; l.at[s] > l.end[s] {
			l.gap(s, min(n, l.at[s]-l.end[s]))
		}
	})
	exit, err := p.Wait(ctx)
	if cause, ok := errors.AsType[*fumehood.Error](context.Cause(ctx)); ok {
		return cause
	}
	if err == nil && exit.Outcome == fumehood.Lost && !exit.CausedInside { // otherwise the program still runs
		err = &fumehood.Error{Class: fumehood.ErrUnavailable, Err: errors.New(exit.Reason)}
	}
	return err
}

// lastLines returns the last n lines of p.
func lastLines(p []byte, n int) []byte {
	end := len(bytes.TrimSuffix(p, []byte("\n")))
	for ; n > 0; n-- {
		if end = bytes.LastIndexByte(p[:end], '\n'); end < 0 {
			return p
		}
	}
	return p[end+1:]
}
