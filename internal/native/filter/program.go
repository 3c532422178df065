package filter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
)

// maxInstructions is the kernel's limit, BPF_MAXINSNS.
const maxInstructions = 4096

// program is a program of classic BPF under construction, from its end to its start: jumps go forward only, so that
// the distance to their targets is known.
type program struct {
	reversed []bpf.Instruction
	returns  map[uint32]int // by result: where the instruction is that was placed last
	full     bool           // it has too many instructions; more are dropped
}

// target is where a jump goes: to an instruction that is already placed, or to any that returns a result.
type target struct {
	at     int // in reversed, if it is not a result
	result uint32
	isEnd  bool
}

func returnTarget(result uint32) target { return target{result: result, isEnd: true} }

// place adds an instruction before all others.
func (p *program) place(i bpf.Instruction) target {
	if len(p.reversed) == maxInstructions {
		p.full = true
		return target{at: len(p.reversed) - 1}
	}
	p.reversed = append(p.reversed, i)
	return target{at: len(p.reversed) - 1}
}

// skip returns the number of instructions between the next one to be placed and a target.
func (p *program) skip(t target) int { return len(p.reversed) - 1 - t.at }

// reach is how far conditional jumps go: 255 instructions, less those that may be placed for the jump's other target.
const reach = 250

// near returns a target, within reach, that leads to t.
func (p *program) near(t target) target {
	if t.isEnd {
		at, ok := p.returns[t.result]
		if !ok || p.skip(target{at: at}) > reach {
			at = p.place(bpf.RetConstant{Val: t.result}).at
			p.returns[t.result] = at
		}
		return target{at: at}
	}
	if p.skip(t) <= reach {
		return t
	}
	return p.place(bpf.Jump{Skip: uint32(p.skip(t))})
}

// branch places a comparison of the accumulator with a value.
func (p *program) branch(test bpf.JumpTest, value uint32, yes, no target) target {
	yes = p.near(yes)
	no = p.near(no)
	return p.place(bpf.JumpIf{Cond: test, Val: value, SkipTrue: uint8(p.skip(yes)), SkipFalse: uint8(p.skip(no))})
}

// The offsets of struct seccomp_data, in bytes.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// load places an instruction that loads the accumulator for the one placed last.
func (p *program) load(offset uint32) target { return p.place(bpf.LoadAbsolute{Off: offset, Size: 4}) }

// loadArg loads a half of an argument, the high one at half 1, without the bits outside of the mask.
func (p *program) loadArg(arg uint, half uint32, mask uint32) target {
	if mask != 1<<32-1 {
		p.place(bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask})
	}
	return p.load(offsetArgs + uint32(arg)*8 + half*4)
}

// point says where to go with values from start up to the next point's.
type point struct {
	start uint32
	to    target
}

// merge returns points in order without those that change nothing. Of several with the same start, the last counts.
func merge(points []point) []point {
	var kept []point
	for _, pt := range points {
		if n := len(kept); n > 0 && kept[n-1].start == pt.start {
			kept = kept[:n-1]
		}
		if n := len(kept); n == 0 || kept[n-1].to != pt.to {
			kept = append(kept, pt)
		}
	}
	return kept
}

// search places a binary search for the value in the accumulator.
func (p *program) search(points []point) target {
	n := len(points)
	if n == 1 {
		return points[0].to
	}
	if n == 3 && points[0].to == points[2].to && points[1].start+1 == points[2].start {
		return p.branch(bpf.JumpEqual, points[1].start, points[1].to, points[0].to)
	}
	right := p.search(points[n/2:])
	left := p.search(points[:n/2])
	return p.branch(bpf.JumpGreaterOrEqual, points[n/2].start, right, left)
}

// dispatch places the decision between calls, for the tables of one architecture of the kernel: one table, or those of
// x86_64 and x32.
func (p *program) dispatch(tables []*table) target {
	// Where the bit of x32 is not set, which includes numbers that no kernel has, runc's stub is that of x86_64.
	const high = 1 << 31
	native := tables[0]
	points, beyond := p.points(native)
	switch {
	case native.audit != auditX86_64:
	case len(tables) == 2:
		other, last := p.points(tables[1])
		points = append(points, other...)
		points = append(points, point{high, beyond}, point{high | x32Bit, last})
	default:
		if native.last == 0 || !native.stub {
			beyond = returnTarget(retKillThread)
		}
		// A tracer sets the number to -1 to skip a call.
		points = append(points, point{x32Bit, returnTarget(retKillThread)}, point{high, beyond}, point{high | x32Bit, returnTarget(retKillThread)}, point{1<<32 - 1, returnTarget(native.fallback)})
	}
	points = merge(points)
	to := p.search(points)
	if len(points) == 1 {
		return to
	}
	return p.load(offsetNumber)
}

// points returns where to go for each number of a table, and for those beyond the last.
func (p *program) points(t *table) (points []point, beyond target) {
	fallback := returnTarget(t.fallback)
	beyond = fallback
	points = append(points, point{t.bit, fallback})
	for _, number := range sortedKeys(t.rules) {
		to := p.rules(t.rules[number], t)
		points = append(points, point{number, to}, point{number + 1, fallback})
	}
	if t.stub && t.last != 0 {
		beyond = returnTarget(retErrno | enosys)
		points = slices.DeleteFunc(points, func(pt point) bool { return pt.start > t.last })
		points = append(points, point{t.last + 1, beyond})
	}
	return points, beyond
}

// rules places the decision between rules for a call.
func (p *program) rules(rules []rule, t *table) target {
	if len(rules[0].conds) == 0 {
		return returnTarget(rules[0].action)
	}
	slices.SortStableFunc(rules, byPriority)
	next := returnTarget(t.fallback)
	for len(rules) > 0 {
		n := sameArg(rules)
		last := rules[len(rules)-n:]
		rules = rules[:len(rules)-n]
		if n > 1 {
			next = p.values(last, next, t.wide)
			continue
		}
		yes := returnTarget(last[0].action)
		for _, c := range slices.Backward(last[0].conds) {
			yes = p.cond(c, t.wide, yes, next)
		}
		next = yes
	}
	return next
}

// sameArg returns how many of the last rules compare the same argument, and nothing else, with values that have the
// same high half. It is at least 1.
func sameArg(rules []rule) int {
	last := rules[len(rules)-1].conds[0]
	if last.op != specs.OpEqualTo {
		return 1
	}
	n := 0
	for _, r := range slices.Backward(rules) {
		c := r.conds[0]
		if len(r.conds) != 1 || c.op != last.op || c.arg != last.arg || c.mask != last.mask || c.value>>32 != last.value>>32 {
			break
		}
		n++
	}
	return max(n, 1)
}

// values places the decision between rules of sameArg.
func (p *program) values(rules []rule, next target, wide bool) target {
	first := rules[0].conds[0]
	to := map[uint32]target{}
	for _, r := range rules {
		to[uint32(r.conds[0].value)] = returnTarget(r.action)
	}
	points := []point{{0, next}}
	for _, v := range sortedKeys(to) {
		points = append(points, point{v, to[v]})
		if v+1 != 0 {
			points = append(points, point{v + 1, next})
		}
	}
	p.search(merge(points))
	found := p.loadArg(first.arg, 0, uint32(first.mask))
	if wide && first.mask>>32 != 0 {
		p.branch(bpf.JumpEqual, uint32(first.value>>32), found, next)
		found = p.loadArg(first.arg, 1, uint32(first.mask>>32))
	}
	return found
}

// cond places a condition, of 64 bits or of 32.
func (p *program) cond(c cond, wide bool, yes, no target) target {
	test := bpf.JumpEqual
	switch c.op {
	case specs.OpEqualTo, specs.OpMaskedEqual:
	case specs.OpNotEqual:
		yes, no = no, yes
	case specs.OpGreaterThan:
		test = bpf.JumpGreaterThan
	case specs.OpLessEqual:
		test, yes, no = bpf.JumpGreaterThan, no, yes
	case specs.OpGreaterEqual:
		test = bpf.JumpGreaterOrEqual
	case specs.OpLessThan:
		test, yes, no = bpf.JumpGreaterOrEqual, no, yes
	}
	low := yes
	if uint32(c.mask) != 0 {
		p.branch(test, uint32(c.value), yes, no)
		low = p.loadArg(c.arg, 0, uint32(c.mask))
	}
	if !wide || c.mask>>32 == 0 {
		return low
	}
	high := p.branch(bpf.JumpEqual, uint32(c.value>>32), low, no)
	if test != bpf.JumpEqual {
		p.branch(bpf.JumpGreaterThan, uint32(c.value>>32), yes, high)
	}
	return p.loadArg(c.arg, 1, uint32(c.mask>>32))
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[uint32]V) []uint32 { return slices.Sorted(maps.Keys(m)) }

// assemble returns the program for tables, of which the first is that of the native ABI. Calls of other architectures
// kill the thread, as under runc.
func assemble(tables []*table) ([]byte, error) {
	p := &program{returns: map[uint32]int{}}
	byArch := map[uint32][]*table{}
	for _, t := range tables {
		byArch[t.audit] = append(byArch[t.audit], t)
	}
	start := map[uint32]target{}
	for _, arch := range sortedKeys(byArch) {
		start[arch] = p.dispatch(byArch[arch])
	}
	next := returnTarget(retKillThread)
	for _, t := range slices.Backward(tables) {
		if to, ok := start[t.audit]; ok {
			next = p.branch(bpf.JumpEqual, t.audit, to, next)
			delete(start, t.audit)
		}
	}
	p.load(offsetArch)
	if p.full {
		return nil, fmt.Errorf("too many rules: more than the %d instructions of a filter", maxInstructions)
	}
	slices.Reverse(p.reversed)
	raw, err := bpf.Assemble(p.reversed)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = binary.Write(&out, binary.LittleEndian, raw)
	return out.Bytes(), err
}
