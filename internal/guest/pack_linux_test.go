package guest

import (
	"bufio"
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/internal/wire"
)

func TestTask_pack(t *testing.T) {
	grace := int64(5000)
	all := start{
		Args: [][]byte{[]byte("a"), {}, {0xff}}, Env: [][]byte{[]byte("K=v")}, Dir: []byte("/d"), Terminal: true, Terse: true,
		Rlimits: &wire.Rlimits{CPU: 1, FileSize: 1 << 40, OpenFiles: 3, Processes: 4},
	}
	for name, want := range map[string]task{
		"signal": {Signal: 15},
		"kill":   {Kill: &grace},
		"start":  {Start: &start{Args: [][]byte{[]byte("true")}, Env: [][]byte{}, Dir: []byte{}}},
		"all":    {Start: &all},
	} {
		t.Run(name, func(t *testing.T) {
			b := wire.Append(nil, &want)
			var got task
			if err := wire.Unpack(b, &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v", got, err)
			}
			for n := range b {
				if err := wire.Unpack(b[:n], &task{}); err == nil {
					t.Errorf("the first %d bytes were unpacked", n)
				}
			}
		})
	}
}

func TestNote_send(t *testing.T) {
	survivors := 3
	for name, want := range map[string]note{
		"started": {Started: true},
		"failed":  {Failed: &wire.Failed{What: wire.NoProgram, Text: "x: not found"}},
		"ended":   {Ended: &ended{Status: 1<<32 - 1, MaxRSS: 1 << 40}, Idle: true, UserUS: 1, SystemUS: 2},
		"killed":  {Killed: &survivors},
	} {
		t.Run(name, func(t *testing.T) {
			var sent bytes.Buffer
			if err := sendNote(&sent, want); err != nil {
				t.Fatal(err)
			}
			whole := sent.Bytes()
			if got, err := readNote(bufio.NewReader(&sent)); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v", got, err)
			}
			for n := range whole {
				if got, err := readNote(bufio.NewReader(bytes.NewReader(whole[:n]))); err == nil {
					t.Errorf("the first %d bytes: %+v", n, got)
				}
			}
		})
	}
	t.Run("long failure", func(t *testing.T) {
		var sent bytes.Buffer
		if err := sendNote(&sent, note{Failed: &wire.Failed{What: wire.NoProgram, Text: strings.Repeat("x", 2<<20)}}); err != nil {
			t.Fatal(err)
		}
		if got, err := readNote(bufio.NewReader(&sent)); err != nil || got.Failed == nil || !strings.HasPrefix(got.Failed.Text, "xx") {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	for name, sent := range map[string][]byte{
		"too long":          {0xff, 0xff, 0xff, 0xff},
		"no number, only 1": {0, 0, 0, 1, 0xff},
	} {
		if got, err := readNote(bufio.NewReader(bytes.NewReader(sent))); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
