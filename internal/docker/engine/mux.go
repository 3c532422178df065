package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The streams of the Engine's multiplexed format (Engine API, "Attach to a container").
const (
	muxStdout = 1
	muxStderr = 2
	muxError  = 3 // the Engine's own message about why the stream ends
)

// muxHead reads the head of a frame. The error is io.EOF if the stream ends properly, between two frames.
func muxHead(r io.Reader) (stream byte, size uint32, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, err
	}
	return head[0], binary.BigEndian.Uint32(head[4:]), nil
}

// demux copies a multiplexed stream to two writers. A stream that ends within a frame is an io.ErrUnexpectedEOF; the
// client's own stdcopy treats it as complete.
func demux(stdout, stderr io.Writer, r io.Reader) error {
	for {
		stream, size, err := muxHead(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var to io.Writer
		switch stream {
		case muxStdout:
			to = stdout
		case muxStderr:
			to = stderr
		case muxError:
			// On an error the text is shorter.
			text, _ := io.ReadAll(io.LimitReader(r, min(int64(size), maxFailureText)))
			return fmt.Errorf("the Engine ended the stream: %s", text)
		default:
			return fmt.Errorf("the Engine sent a frame of stream %d", stream)
		}
		if _, err := io.CopyN(to, r, int64(size)); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
}
