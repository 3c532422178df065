package filter

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
)

// event is what a filter sees of a call: struct seccomp_data.
type event struct {
	number, arch uint32
	args         [maxArgs]uint64
}

// machine runs a program.
type machine struct {
	t  *testing.T
	vm *bpf.VM
}

func newMachine(t *testing.T, text []byte) machine {
	t.Helper()
	raw := make([]bpf.RawInstruction, len(text)/8)
	if err := binary.Read(bytes.NewReader(text), binary.LittleEndian, raw); err != nil {
		t.Fatal(err)
	}
	list, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("unknown instructions")
	}
	vm, err := bpf.NewVM(list)
	if err != nil {
		t.Fatal(err)
	}
	return machine{t, vm}
}

// run returns the result of the program. The machine reads words as big-endian, a kernel as its processor does.
func (m machine) run(e event) uint32 {
	words := []uint32{e.number, e.arch, 0, 0}
	for _, arg := range e.args {
		words = append(words, uint32(arg), uint32(arg>>32))
	}
	var data []byte
	for _, word := range words {
		data = binary.BigEndian.AppendUint32(data, word)
	}
	result, err := m.vm.Run(data)
	if err != nil {
		m.t.Fatal(err)
	}
	return uint32(result)
}
