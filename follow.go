package fumehood

import (
	"context"
	"fmt"
	"iter"
)

// Chunk is a piece of one of a command's output streams.
type Chunk struct {
	// Offset is where Data begins, in bytes from the beginning of the stream. Where that is beyond what
	// was asked for, or beyond the end of the chunk before, the bytes between are not held any more.
	Offset int64
	// Data may be kept by the receiver. It is empty only in a last chunk that tells of bytes that are not
	// held, and of none that are.
	Data []byte
}

// chunkSize is the most that one Chunk holds, in bytes.
const chunkSize = 64 << 10

// Follow yields what the command writes to the stream s, from an offset in bytes on: what is held of it,
// and then what comes, until the command has ended and all is told. Held is the end of the stream, as
// much as Cmd's cap of it; it is held after the end too. An offset that is not reached yet is waited
// for. How the command ended is Wait's to say.
//
// Any number of loops may follow at once, and none holds the program back: one that is too slow for the
// cap sees by the offsets what it has missed. The other way to listen is Events. The end of ctx ends
// the loop with an ErrCancelled; the command runs on.
func (p *Process) Follow(ctx context.Context, s Stream, offset int64) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		if (s != Stdout && s != Stderr) || offset < 0 {
			yield(Chunk{}, &Error{Op: "follow", Service: p.svc.info.Name, Class: ErrConfig, Err: fmt.Errorf("there is no offset %d of a stream %d", offset, s)})
			return
		}
		p.follow(ctx, s, offset, yield)
	}
}

func (p *Process) follow(ctx context.Context, s Stream, offset int64, yield func(Chunk, error) bool) {
	p.awaited()
	ended := false
	for ctx.Err() == nil {
		data, at, more := p.out[s].From(offset, chunkSize)
		switch {
		case len(data) > 0:
			if !yield(Chunk{Offset: at, Data: data}, nil) {
				return
			}
			offset = at + int64(len(data))
		case ended:
			if at > offset {
				yield(Chunk{Offset: at}, nil)
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
	yield(Chunk{}, cancelled(ctx, "follow", p.svc.info.Name))
}
