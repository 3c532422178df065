package wire

import (
	"reflect"
	"slices"
	"testing"
)

func TestUnpack(t *testing.T) {
	texts := [][]byte{[]byte("a"), {}, {0xff}}
	for name, want := range map[string]Packable{
		"exec": &Exec{
			Args: texts, Env: texts, Dir: []byte("/d"), Stdin: true, Terminal: &Size{Rows: 1, Cols: 1<<16 - 1}, Live: true, Caps: [2]int64{1 << 40, 2},
			Terse: true, GraceMS: 3, KillRest: true, Rlimits: &Rlimits{CPU: 1, FileSize: 1 << 40, OpenFiles: 3, Processes: 4}, Detach: true, ID: 5, WallMS: 6, CPUUS: 7,
		},
		"short exec": &Exec{Args: texts[:1], Env: [][]byte{}, Dir: []byte{}},
		"started":    &Reply{Started: &Started{ID: 1}},
		"failed":     &Reply{Failed: &Failed{What: NoProgram, Text: "x: not found"}},
		"exit": &Reply{Exit: &Exit{
			Code: 1, Signal: 2, Lost: true, Killed: true, Survivors: 3, Totals: [2]int64{4, 5}, UserUS: 6, SystemUS: 7, MaxRSS: 1 << 40,
			OOMKills: 8, PIDsLimits: 9, Peak: 10, WallUS: 11, TimedOut: true, CPUUS: 12,
		}},
		"failure": &Reply{Exit: &Exit{Code: -1, Lost: true}},
	} {
		t.Run(name, func(t *testing.T) {
			unpack := func(b []byte) (Packable, error) {
				got := reflect.New(reflect.TypeOf(want).Elem()).Interface().(Packable)
				return got, Unpack(b, got)
			}
			b := Append(nil, want)
			if got, err := unpack(b); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v", got, err)
			}
			for n := range b {
				if got, err := unpack(b[:n]); err == nil {
					t.Errorf("the first %d bytes: %+v", n, got)
				}
			}
			if got, err := unpack(append(b, 0)); err == nil {
				t.Errorf("with another byte: %+v", got)
			}
		})
	}
}

func TestUnpack_malformed(t *testing.T) {
	for name, b := range map[string][]byte{
		"endless number":       slices.Repeat([]byte{0xff}, 11),
		"negative length":      {0, 2, 1},
		"length beyond end":    {0, 2, 100},
		"length of all memory": {0, 2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		var r Reply
		if err := Unpack(b, &r); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for name, b := range map[string][]byte{
		"negative count":   {1},
		"count of texts":   {0xfe, 0xff, 0xff, 0x0f, 0, 0},
		"65536 characters": Append(nil, &wide{}),
	} {
		var e Exec
		if err := Unpack(b, &e); err == nil {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// wide is an Exec whose terminal is one row too high.
type wide struct{ Exec }

func (w *wide) Pack(p *Packer) {
	w.Exec.Pack(p)
	p.b = p.b[:len(p.b)-2] // without terminal and limits
	for _, n := range []int64{1, 1 << 16, 1, 0} {
		Number(p, &n)
	}
}

func TestDecodeRequest(t *testing.T) {
	for _, want := range []Request{
		{Exec: &Exec{Args: [][]byte{[]byte("true")}, Env: [][]byte{}, Dir: []byte{}}},
		{Forget: &Forget{ID: 3}},
	} {
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRequest(b)
		clear(b) // it must not be used any more
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for _, b := range []string{"", "\x00", "\x00\x00", "none"} {
		if got, err := DecodeRequest([]byte(b)); err == nil {
			t.Errorf("%q: %+v", b, got)
		}
	}
}
