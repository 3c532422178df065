package wire

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"
)

func frame(stream uint32, t Type, payload []byte) []byte {
	return append(appendHeader(nil, stream, t, len(payload)), payload...)
}

func TestDecoder_allSizesAndTypes(t *testing.T) {
	sizes := []int{0, 1, 2, 255, 256, 64<<10 - 1, 64 << 10, 64<<10 + 1, MaxFromGuest}
	var wire []byte
	for i, n := range sizes {
		wire = append(wire, frame(uint32(i)<<24|7, Hello+Type(i), numbered(n))...)
	}
	for name, r := range map[string]io.Reader{"at once": bytes.NewReader(wire), "in pieces": iotestOneByte(wire)} {
		d := NewDecoder(r, MaxFromGuest)
		for i, n := range sizes {
			f, err := d.Next()
			if err != nil || f.Stream != uint32(i)<<24|7 || f.Type != Hello+Type(i) || !bytes.Equal(f.Payload, numbered(n)) {
				t.Fatalf("%s, frame %d: stream %d, type %d, %d bytes, %v", name, i, f.Stream, f.Type, len(f.Payload), err)
			}
		}
		if _, err := d.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: error at the end: %v", name, err)
		}
	}
}

// iotestOneByte returns a reader that returns pieces of at most 7 bytes, so that headers are split.
func iotestOneByte(p []byte) io.Reader { return &inPieces{p} }

type inPieces struct{ rest []byte }

func (r *inPieces) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 7)], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestDecoder_invalidFrames(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		limit int
		want  error
	}{
		"type 0":              {frame(1, 0, nil), MaxFromGuest, ErrProtocol},
		"an unknown type":     {frame(1, Shared+1, nil), MaxFromGuest, ErrProtocol},
		"type 255":            {frame(1, 255, nil), MaxFromGuest, ErrProtocol},
		"larger than allowed": {appendHeader(nil, 1, Data, MaxFromGuest+1), MaxFromGuest, ErrProtocol},
		"the largest size": {
			appendHeader(nil, 1, Data, 1<<24-1), MaxFromHost, ErrProtocol,
		},
		"half a header":  {frame(1, Data, nil)[:5], MaxFromGuest, io.ErrUnexpectedEOF},
		"no payload":     {appendHeader(nil, 1, Data, 10), MaxFromGuest, io.ErrUnexpectedEOF},
		"half a payload": {append(appendHeader(nil, 1, Data, 100<<10), make([]byte, 70<<10)...), MaxFromGuest, io.ErrUnexpectedEOF},
	} {
		if _, err := NewDecoder(bytes.NewReader(c.bytes), c.limit).Next(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestDecoder_statedLength(t *testing.T) {
	head := appendHeader(nil, 1, Open, MaxFromHost)
	got := allocated(func() {
		for range 8 {
			if _, err := NewDecoder(bytes.NewReader(head), MaxFromHost).Next(); err == nil {
				t.Error("a header alone was decoded as a frame")
			}
		}
	})
	if got > 8*256<<10 {
		t.Errorf("8 headers of frames of %d bytes allocated %d bytes", MaxFromHost, got)
	}
}

// FuzzDecoder checks that any input is either decoded without loss or rejected, in bounded memory.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(append(frame(0, Hello, []byte{Version}), frame(2, Message, []byte("{}"))...), false)
	f.Add(append(frame(1, Open, numbered(70<<10)), frame(1, Data, numbered(MaxData))...), true)
	f.Add(appendHeader(nil, 1, Open, MaxFromHost), true)
	f.Add(appendHeader(nil, 1, Data, MaxFromGuest+1), false)
	f.Fuzz(func(t *testing.T, in []byte, fromHost bool) {
		limit := MaxFromGuest
		if fromHost {
			limit = MaxFromHost
		}
		d := NewDecoder(bytes.NewReader(in), limit)
		var out []byte
		for {
			fr, err := d.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, ErrProtocol) {
					t.Errorf("error at the end: %v", err)
				}
				break
			}
			out = append(out, frame(fr.Stream, fr.Type, fr.Payload)...)
		}
		if !bytes.HasPrefix(in, out) {
			t.Errorf("input of %d bytes: the %d bytes of its frames are not a prefix", len(in), len(out))
		}
		if most := 2*len(in) + 64<<10; cap(d.buf) > most {
			t.Errorf("after %d bytes the buffer has %d", len(in), cap(d.buf))
		}
	})
}
