package box

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// flood is a program of a hostile guest. It delivers its output of left bytes until nobody reads it.
type flood struct {
	provider.DetachedBackend
	out  provider.Sink
	left int
}

func (f *flood) OnGap(func(fumehood.Stream, int64)) {}

func (f *flood) Wait(ctx context.Context) (provider.Exit, error) {
	line := append(bytes.Repeat([]byte("x"), 32<<10-1), '\n')
	for ; f.left > 0 && ctx.Err() == nil; f.left -= len(line) {
		f.out(fumehood.Stderr, line)
	}
	return provider.Exit{Outcome: fumehood.Exited}, ctx.Err()
}

// A log that does not follow ends, and takes little memory, whatever the guest sends.
func TestLogReader_flood(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts            provider.LogOptions
		sent, delivered int // in lines of 32 KiB
		want            error
	}{
		"all":            {sent: 32, delivered: 32},
		"too much":       {sent: 100, delivered: 32, want: fumehood.ErrBroken},
		"tail":           {opts: provider.LogOptions{Tail: 2}, sent: 32, delivered: 2},
		"tail, too much": {opts: provider.LogOptions{Tail: 2}, sent: 100, want: fumehood.ErrBroken},
		"follow":         {opts: provider.LogOptions{Follow: true}, sent: 100, delivered: 100},
	} {
		f, delivered := &flood{left: c.sent << 15}, 0
		l := &logReader{
			program: func(_ context.Context, _ bool, out provider.Sink) (provider.DetachedBackend, error) {
				f.out = out
				return f, nil
			},
			out: func(_ fumehood.Stream, p []byte) { delivered += len(p) },
			at:  map[fumehood.Stream]int64{}, end: map[fumehood.Stream]int64{},
		}
		err := l.read(t.Context(), c.opts)
		if !errors.Is(err, c.want) || delivered != c.delivered<<15 || (f.left > 0) != (c.want != nil) {
			t.Errorf("%s: %d of %d bytes, %d not sent, %v", name, delivered, c.sent<<15, f.left, err)
		}
	}
}
