package cli

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
)

// output is standard output. Its write errors carry their exit code. Once ending is closed, a write that takes longer
// than lastWords fails with errStuck, and so do all later writes: a stuck reader must not delay the exit.
type output struct {
	w      io.Writer
	ending <-chan struct{}
	stuck  atomic.Bool // a write timed out: later writes fail
}

const lastWords = 2 * time.Second

var errStuck = &fumehood.Error{Class: fumehood.ErrCanceled, Err: errors.New("the reader is stuck")}

func (o *output) Write(p []byte) (int, error) {
	if o.stuck.Load() {
		return 0, outputError(errStuck)
	}
	type written struct {
		n   int
		err error
	}
	done := make(chan written, 1)
	kept := bytes.Clone(p) // the write may outlive this call
	go func() {
		n, err := o.w.Write(kept)
		done <- written{n, err}
	}()
	var got written
	select {
	case got = <-done:
	case <-o.ending:
		select {
		case got = <-done:
		case <-time.After(lastWords):
			o.stuck.Store(true)
			got.err = errStuck
		}
	}
	if got.err != nil {
		got.err = outputError(got.err)
	}
	return got.n, got.err
}
