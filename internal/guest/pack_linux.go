package guest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/fumehood/fumehood/internal/wire"
)

// Tasks and notes are sent as numbers, which are signed varints, and texts, which are a length and bytes. The encoding
// is between processes of the same program, so it needs no names. Package json takes ten times as long, and each
// command waits for both messages.

// maxNote bounds the size of a note in bytes. A failure has a path and an error.
const maxNote = 1 << 20

var errPacked = errors.New("malformed message")

func packFlag(b []byte, flag bool) []byte {
	if flag {
		return binary.AppendVarint(b, 1)
	}
	return binary.AppendVarint(b, 0)
}

func packText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendVarint(b, int64(len(text))), text...)
}

func packTexts(b []byte, texts [][]byte) []byte {
	b = binary.AppendVarint(b, int64(len(texts)))
	for _, text := range texts {
		b = packText(b, text)
	}
	return b
}

// packed is the rest of a message. After the first error it has zero values only.
type packed struct {
	rest []byte
	err  error
}

func (p *packed) number() int64 {
	n, size := binary.Varint(p.rest)
	if size <= 0 {
		p.rest, p.err = nil, errPacked
		return 0
	}
	p.rest = p.rest[size:]
	return n
}

func (p *packed) flag() bool { return p.number() != 0 }

// length returns a number of bytes, or of values that take at least one byte each.
func (p *packed) length() int {
	n := p.number()
	if n < 0 || n > int64(len(p.rest)) {
		p.rest, p.err = nil, errPacked
		return 0
	}
	return int(n)
}

func (p *packed) text() []byte {
	n := p.length()
	text := p.rest[:n:n]
	p.rest = p.rest[n:]
	return text
}

func (p *packed) texts() [][]byte {
	all := make([][]byte, p.length())
	for i := range all {
		all[i] = p.text()
	}
	return all
}

// pack appends the task to b.
func (t task) pack(b []byte) []byte {
	b = binary.AppendVarint(b, int64(t.Signal))
	b = packFlag(b, t.Kill != nil)
	if t.Kill != nil {
		b = binary.AppendVarint(b, *t.Kill)
	}
	b = packFlag(b, t.Start != nil)
	if s := t.Start; s != nil {
		b = packTexts(packTexts(b, s.Args), s.Env)
		b = packText(b, s.Dir)
		b = packFlag(packFlag(b, s.Terminal), s.Terse)
		b = packFlag(b, s.Rlimits != nil)
		if l := s.Rlimits; l != nil {
			for _, n := range []int64{l.CPU, l.FileSize, l.OpenFiles, l.Processes} {
				b = binary.AppendVarint(b, n)
			}
		}
	}
	return b
}

func unpackTask(b []byte) (task, error) {
	p := &packed{rest: b}
	t := task{Signal: int(p.number())}
	if p.flag() {
		grace := p.number()
		t.Kill = &grace
	}
	if p.flag() {
		t.Start = &start{Args: p.texts(), Env: p.texts(), Dir: p.text(), Terminal: p.flag(), Terse: p.flag()}
		if p.flag() {
			t.Start.Rlimits = &wire.Rlimits{CPU: p.number(), FileSize: p.number(), OpenFiles: p.number(), Processes: p.number()}
		}
	}
	return t, p.err
}

// sendNote writes a note.
func sendNote(w io.Writer, n note) error {
	b := packFlag(packFlag(make([]byte, 4), n.Started), n.Idle)
	b = packFlag(b, n.Failed != nil)
	if n.Failed != nil {
		b = packText(packText(b, n.Failed.What), wire.Clip(n.Failed.Text))
	}
	b = packFlag(b, n.Ended != nil)
	if e := n.Ended; e != nil {
		for _, n := range []int64{int64(e.Status), e.UserUS, e.SystemUS, e.MaxRSS} {
			b = binary.AppendVarint(b, n)
		}
	}
	b = packFlag(b, n.Killed != nil)
	if n.Killed != nil {
		b = binary.AppendVarint(b, int64(*n.Killed))
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // notes are much shorter
	_, err := w.Write(b)
	return err
}

// readNote reads a note. It returns io.EOF if the input ends before one.
func readNote(r *bufio.Reader) (note, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return note{}, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxNote {
		return note{}, errPacked
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return note{}, err
	}
	p := &packed{rest: body}
	n := note{Started: p.flag(), Idle: p.flag()}
	if p.flag() {
		n.Failed = &wire.Failed{What: string(p.text()), Text: string(p.text())}
	}
	if p.flag() {
		n.Ended = &ended{Status: uint32(p.number()), UserUS: p.number(), SystemUS: p.number(), MaxRSS: p.number()} //nolint:gosec // as sent
	}
	if p.flag() {
		survivors := int(p.number())
		n.Killed = &survivors
	}
	return n, p.err
}
