package guest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/fumehood/fumehood/internal/wire"
)

// Tasks and notes are packed too, each after its length.

// maxNote bounds the size of a note in bytes. A failure has a path and an error.
const maxNote = 1 << 20

var errLong = errors.New("note too long")

// packMessage returns a message after its length.
func packMessage(m wire.Packable) []byte {
	b := wire.Append(make([]byte, 4, 64), m)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // messages are much shorter
	return b
}

// Pack implements wire.Packable.
func (t *task) Pack(p *wire.Packer) {
	wire.Number(p, &t.Signal)
	if wire.Optional(p, &t.Kill) {
		wire.Number(p, t.Kill)
	}
	if wire.Optional(p, &t.Start) {
		t.Start.Pack(p)
	}
}

// Pack implements wire.Packable.
func (s *start) Pack(p *wire.Packer) {
	p.Texts(&s.Args)
	p.Texts(&s.Env)
	p.Text(&s.Dir)
	p.Flags(&s.Terminal, &s.Terse)
	if wire.Optional(p, &s.Rlimits) {
		s.Rlimits.Pack(p)
	}
}

// Pack implements wire.Packable.
func (n *note) Pack(p *wire.Packer) {
	p.Flags(&n.Started, &n.Idle, &n.Ready)
	p.Numbers(&n.UserUS, &n.SystemUS)
	if wire.Optional(p, &n.Failed) {
		n.Failed.Pack(p)
	}
	if wire.Optional(p, &n.Ended) {
		wire.Number(p, &n.Ended.Status)
		p.Numbers(&n.Ended.MaxRSS)
	}
	if wire.Optional(p, &n.Killed) {
		wire.Number(p, n.Killed)
	}
}

// sendNote writes a note.
func sendNote(w io.Writer, n note) error {
	if n.Failed != nil {
		n.Failed.Text = wire.Clip(n.Failed.Text)
	}
	_, err := w.Write(packMessage(&n))
	return err
}

// readNote reads a note. It returns io.EOF if the input ends before one.
func readNote(r *bufio.Reader) (n note, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return n, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxNote {
		return n, errLong
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return n, err
	}
	return n, wire.Unpack(body, &n)
}
