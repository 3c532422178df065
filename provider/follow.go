package provider

import (
	"context"
	"fmt"
	"iter"

	"github.com/fumehood/fumehood"
)

// chunkSize is the maximum size of a Chunk in bytes.
const chunkSize = 64 << 10

func (p *process) Follow(ctx context.Context, s fumehood.Stream, offset int64) iter.Seq2[fumehood.Chunk, error] {
	return func(yield func(fumehood.Chunk, error) bool) {
		if (s != fumehood.Stdout && s != fumehood.Stderr) || offset < 0 {
			yield(fumehood.Chunk{}, &fumehood.Error{Op: "follow", Service: p.svc.info.Name, Class: fumehood.ErrConfig, Err: fmt.Errorf("invalid offset %d or stream %d", offset, s)})
			return
		}
		p.follow(ctx, s, offset, yield)
	}
}

func (p *process) follow(ctx context.Context, s fumehood.Stream, offset int64, yield func(fumehood.Chunk, error) bool) {
	p.ensureRecorded()
	ended := false
	for ctx.Err() == nil {
		data, at, more := p.out[s].From(offset, chunkSize)
		switch {
		case len(data) > 0:
			if !yield(fumehood.Chunk{Offset: at, Data: data}, nil) {
				return
			}
			offset = at + int64(len(data))
		case ended:
			if at > offset {
				yield(fumehood.Chunk{Offset: at}, nil)
			}
			return
		default:
			select {
			case <-more:
			case <-p.done:
				ended = true
			case <-ctx.Done():
			}
		}
	}
	yield(fumehood.Chunk{}, canceledError(ctx, "follow", p.svc.info.Name))
}
