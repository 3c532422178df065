package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
)

// Requests to run a command, and replies about commands, are packed: numbers are signed varints, and texts are a length
// and bytes. Host and guest have the same Version, so the encoding needs no names. Package json takes ten times as
// long, and each command waits for both messages.

// Packer packs or unpacks one message. A message's Pack method passes each field to it, in the same order in both
// directions. After an error, all further fields become zero values.
type Packer struct {
	b       []byte // the packed message, or the rest of it
	reading bool
	err     error
}

// Packable is a message that can be packed.
type Packable interface{ Pack(p *Packer) }

var errPacked = errors.New("malformed message")

// Append appends the packed message to b.
func Append(b []byte, m Packable) []byte {
	p := Packer{b: b}
	m.Pack(&p)
	return p.b
}

// Unpack unpacks a zero message from exactly the bytes b. The texts in the message share memory with b.
func Unpack(b []byte, m Packable) error {
	p := Packer{b: b, reading: true}
	if m.Pack(&p); p.err == nil && len(p.b) > 0 {
		p.fail()
	}
	return p.err
}

func (p *Packer) fail() { p.b, p.err = nil, errPacked }

// Number packs a number.
func Number[N int | int64 | uint16 | uint32](p *Packer, n *N) {
	if !p.reading {
		p.b = binary.AppendVarint(p.b, int64(*n))
		return
	}
	v, size := binary.Varint(p.b)
	if size <= 0 || int64(N(v)) != v {
		p.fail()
		return
	}
	p.b, *n = p.b[size:], N(v)
}

// Numbers packs several numbers.
func (p *Packer) Numbers(all ...*int64) {
	for _, n := range all {
		Number(p, n)
	}
}

// Flags packs flags.
func (p *Packer) Flags(all ...*bool) {
	for _, f := range all {
		n := 0
		if *f {
			n = 1
		}
		Number(p, &n)
		*f = n != 0
	}
}

// Optional packs whether *m is set, and returns that. When unpacking, it sets *m to a zero value, which the caller then
// unpacks.
func Optional[T any](p *Packer, m **T) bool {
	is := *m != nil
	if p.Flags(&is); is && *m == nil {
		*m = new(T)
	}
	return is
}

// length packs a number of bytes, or of values that take at least one byte each.
func (p *Packer) length(n int) int {
	if Number(p, &n); p.reading && (n < 0 || n > len(p.b)) {
		p.fail()
		return 0
	}
	return n
}

// Text packs a text.
func (p *Packer) Text(text *[]byte) {
	n := p.length(len(*text))
	if !p.reading {
		p.b = append(p.b, *text...)
		return
	}
	if p.err == nil {
		*text, p.b = p.b[:n:n], p.b[n:]
	}
}

// String packs a text that is a string.
func (p *Packer) String(s *string) {
	text := []byte(*s)
	p.Text(&text)
	*s = string(text)
}

// Texts packs texts.
func (p *Packer) Texts(all *[][]byte) {
	n := p.length(len(*all))
	if p.reading {
		*all = make([][]byte, n)
	}
	for i := range *all {
		p.Text(&(*all)[i])
	}
}

// packedExec is the first byte of a packed request. It does not occur in JSON.
const packedExec = 0

// Encode encodes the request. Only an Exec is packed.
func (r *Request) Encode() ([]byte, error) {
	if r.Exec != nil {
		return Append([]byte{packedExec}, r.Exec), nil
	}
	return json.Marshal(r)
}

// DecodeRequest decodes a request. It does not keep b.
func DecodeRequest(b []byte) (r Request, err error) {
	if len(b) == 0 || b[0] != packedExec {
		err = json.Unmarshal(b, &r)
		return r, err
	}
	r.Exec = new(Exec)
	return r, Unpack(append([]byte(nil), b[1:]...), r.Exec)
}

// Pack implements Packable.
func (e *Exec) Pack(p *Packer) {
	p.Texts(&e.Args)
	p.Texts(&e.Env)
	p.Text(&e.Dir)
	p.Flags(&e.Stdin, &e.Live, &e.Terse, &e.KillRest, &e.Detach, &e.Check)
	p.Numbers(&e.Caps[0], &e.Caps[1], &e.GraceMS, &e.WallMS, &e.CPUUS)
	Number(p, &e.ID)
	if Optional(p, &e.Terminal) {
		Number(p, &e.Terminal.Rows)
		Number(p, &e.Terminal.Cols)
	}
	if Optional(p, &e.Rlimits) {
		e.Rlimits.Pack(p)
	}
}

// Pack implements Packable.
func (l *Rlimits) Pack(p *Packer) { p.Numbers(&l.CPU, &l.FileSize, &l.OpenFiles, &l.Processes) }

// Pack implements Packable.
func (r *Reply) Pack(p *Packer) {
	if Optional(p, &r.Started) {
		Number(p, &r.Started.ID)
	}
	if Optional(p, &r.Failed) {
		r.Failed.Pack(p)
	}
	if Optional(p, &r.Exit) {
		e := r.Exit
		Number(p, &e.Code)
		Number(p, &e.Signal)
		Number(p, &e.Survivors)
		p.Flags(&e.Lost, &e.Killed, &e.Alone, &e.TimedOut)
		p.Numbers(&e.Totals[0], &e.Totals[1], &e.UserUS, &e.SystemUS, &e.CPUUS, &e.MaxRSS, &e.OOMKills, &e.PIDsLimits, &e.Peak, &e.WallUS)
	}
}

// Pack implements Packable.
func (f *Failed) Pack(p *Packer) {
	p.String(&f.What)
	p.String(&f.Text)
}
