package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestDatagram_boundaries(t *testing.T) {
	all := [][]byte{[]byte("one"), {}, bytes.Repeat([]byte{0xff}, MaxDatagram), []byte("two")}
	var b []byte
	for _, d := range all {
		var err error
		if b, err = AppendDatagram(b, d); err != nil {
			t.Fatal(err)
		}
	}
	r := bytes.NewReader(b)
	for i, want := range all {
		if got, err := ReadDatagram(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("datagram %d: %d bytes, want %d: %v", i, len(got), len(want), err)
		}
	}
	if _, err := ReadDatagram(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

func TestDatagram_tooLongOrCut(t *testing.T) {
	if _, err := AppendDatagram(nil, make([]byte, MaxDatagram+1)); err == nil {
		t.Error("a datagram that is too long was accepted")
	}
	for _, cut := range [][]byte{{0}, {0, 1}, {0, 3, 'a', 'b'}} {
		if _, err := ReadDatagram(bytes.NewReader(cut)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("input %v: %v", cut, err)
		}
	}
}
