package local

import (
	"context"
	"io"
	"iter"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// refuseFiles returns files whose every operation fails with err. It is for users that a provider does not support.
func refuseFiles(err error) provider.FileBackend { return refused{err} }

type refused struct{ err error }

func (r refused) Stat(context.Context, string) (fumehood.FileInfo, error) {
	return fumehood.FileInfo{}, r.err
}

func (r refused) Open(context.Context, string, int64, int64) (io.ReadCloser, fumehood.FileInfo, error) {
	return nil, fumehood.FileInfo{}, r.err
}

func (r refused) Write(context.Context, string, io.Reader, int64, fumehood.WriteOptions) error {
	return r.err
}

func (r refused) Walk(context.Context, string, int) iter.Seq2[fumehood.WalkEntry, error] {
	return func(yield func(fumehood.WalkEntry, error) bool) { yield(fumehood.WalkEntry{}, r.err) }
}

func (r refused) Change(context.Context, provider.Change) error           { return r.err }
func (r refused) Upload(context.Context, string, io.Reader) error         { return r.err }
func (r refused) Download(context.Context, string) (io.ReadCloser, error) { return nil, r.err }
