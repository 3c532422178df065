package cli

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"
)

// output is standard output: what cannot be written is an error that has its exit code. Once the program is to end, who reads has
// lastWords for what comes still: a reader that does not go on would hold it up.
type output struct {
	w      io.Writer
	ending <-chan struct{}
	stuck  atomic.Bool // nothing more is written
}

const lastWords = 2 * time.Second

var errStuck = &fumehood.Error{Class: fumehood.ErrCancelled, Err: errors.New("nobody reads it")}

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
