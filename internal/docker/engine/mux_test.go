package engine

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestDemux_truncated(t *testing.T) {
	const whole = "\x01\x00\x00\x00\x00\x00\x00\x03out\x02\x00\x00\x00\x00\x00\x00\x03err"
	for n := range len(whole) + 1 {
		var out, errs strings.Builder
		err := demux(&out, &errs, strings.NewReader(whole[:n]))
		if between := n == 0 || n == 11 || n == len(whole); between != (err == nil) || !between && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", n, err)
		}
		if want := whole[min(8, n):min(11, n)]; out.String() != want {
			t.Errorf("after %d bytes: output %q, want %q", n, out.String(), want)
		}
	}
	if err := demux(io.Discard, io.Discard, strings.NewReader("\x03\x00\x00\x00\x00\x00\x00\x04gone")); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("the Engine's own message: %v", err)
	}
	if err := demux(io.Discard, io.Discard, strings.NewReader("\x07\x00\x00\x00\x00\x00\x00\x00")); err == nil {
		t.Error("stream 7 was accepted")
	}
}
