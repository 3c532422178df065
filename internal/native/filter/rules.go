package filter

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// cond is a condition on an argument of a call.
type cond struct {
	arg         uint
	op          specs.LinuxSeccompOperator // never SCMP_CMP_MASKED_EQ
	mask, value uint64                     // the bits that are compared; all, except for SCMP_CMP_EQ
}

// rule is what to do with a call. All conditions must hold; they are in the order of the arguments.
type rule struct {
	conds  []cond
	action uint32
}

// maxArgs is the number of arguments of a system call.
const maxArgs = 6

// conditions returns the conditions of a rule. If it has several for the same argument, runc makes a rule of each.
func conditions(args []specs.LinuxSeccompArg) ([][]cond, error) {
	var all []cond
	repeated := false
	for i, arg := range args {
		c := cond{arg: arg.Index, op: arg.Op, mask: math.MaxUint64, value: arg.Value}
		switch arg.Op {
		case specs.OpEqualTo, specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpGreaterThan, specs.OpGreaterEqual:
		case specs.OpMaskedEqual:
			c.op, c.mask, c.value = specs.OpEqualTo, arg.Value, arg.ValueTwo&arg.Value
		default:
			return nil, fmt.Errorf("args[%d]: unknown op %.40q", i, arg.Op)
		}
		if c.arg >= maxArgs {
			return nil, fmt.Errorf("args[%d]: index %d: calls have %d arguments", i, c.arg, maxArgs)
		}
		repeated = repeated || slices.ContainsFunc(all, func(other cond) bool { return other.arg == c.arg })
		all = append(all, c)
	}
	if !repeated {
		slices.SortFunc(all, func(a, b cond) int { return cmp.Compare(a.arg, b.arg) })
		return [][]cond{all}, nil
	}
	return slices.Collect(slices.Chunk(all, 1)), nil
}

// table has the rules of an ABI by the number of the call.
type table struct {
	abi
	fallback uint32 // the action without a rule
	stub     bool
	known    map[string]uint32
	last     uint32 // the highest number that the profile names, 0 if none
	rules    map[uint32][]rule
}

func newTable(a abi, fallback uint32, stub bool) *table {
	return &table{abi: a, fallback: fallback, stub: stub, known: a.numbers(), rules: map[uint32][]rule{}}
}

// addCall adds a rule for a call. Calls that the ABI does not have are ignored.
func (t *table) addCall(name string, r rule) error {
	mux, argument := "", uint64(0)
	if t.muxed {
		mux, argument = multiplexer(name)
	}
	number, ok := t.known[name]
	if ok && mux == "" {
		t.last = max(t.last, number) // runc knows multiplexed calls by negative numbers
	}
	if r.action == t.fallback {
		return nil
	}
	if mux != "" {
		// libseccomp ignores what a rule says of the first argument, which is the number of the call here, but takes
		// those of the others for conditions on the multiplexer's.
		conds := []cond{{0, specs.OpEqualTo, math.MaxUint64, argument}}
		if len(r.conds) > 0 && r.conds[0].arg == 0 {
			conds = append(conds, r.conds[1:]...)
		} else {
			conds = append(conds, r.conds...)
		}
		if err := t.addRule(t.known[mux], rule{conds, r.action}); err != nil {
			return err
		}
	}
	if !ok {
		return nil
	}
	return t.addRule(number, r)
}

// addRule adds a rule for a number. As in libseccomp, the first rule without conditions replaces all others. A rule is
// dropped if the call has one with the same conditions, or with only the first of them.
func (t *table) addRule(number uint32, r rule) error {
	r.conds = t.narrow(r.conds)
	rules := t.rules[number]
	if len(rules) > 0 && len(rules[0].conds) == 0 {
		return nil
	}
	if len(r.conds) == 0 {
		t.rules[number] = []rule{r}
		return nil
	}
	for _, other := range rules {
		longer := len(other.conds) > len(r.conds)
		switch {
		case !hasPrefix(other.conds, r.conds) && !hasPrefix(r.conds, other.conds):
			continue
		case other.action != r.action && (longer || len(other.conds) == len(r.conds)):
			return errors.New("two actions for the same arguments")
		case !longer:
			return nil
		}
	}
	rules = slices.DeleteFunc(rules, func(other rule) bool { return hasPrefix(other.conds, r.conds) })
	t.rules[number] = append(rules, r)
	return nil
}

// narrow returns conditions with the bits that arguments of the ABI have, without those that always hold.
func (t *table) narrow(conds []cond) []cond {
	var kept []cond
	for _, c := range conds {
		if !t.wide {
			c.mask &= math.MaxUint32
			c.value &= math.MaxUint32
		}
		if c.mask != 0 {
			kept = append(kept, c)
		}
	}
	return kept
}

func hasPrefix(all, prefix []cond) bool {
	return len(all) >= len(prefix) && slices.Equal(all[:len(prefix)], prefix)
}

// byPriority compares two rules for a call: if the conditions of both hold, the smaller one decides. This is the order
// of libseccomp's tree, whose nodes are halves of arguments.
func byPriority(a, b rule) int {
	for i := range min(len(a.conds), len(b.conds)) {
		x, y := a.conds[i], b.conds[i]
		if c := cmp.Or(cmp.Compare(y.arg, x.arg), cmp.Compare(class(x.op), class(y.op))); c != 0 {
			return c
		}
		for _, shift := range []int{32, 0} {
			v, w := uint32(x.value>>shift), uint32(y.value>>shift)
			if v != w {
				if class(x.op) == less {
					v, w = w, v
				}
				return cmp.Compare(w, v)
			}
			if uint32(x.mask>>shift) != uint32(y.mask>>shift) {
				return 0
			}
		}
		if x.op != y.op {
			return 0
		}
	}
	return 0
}

// The classes of operators, in the order in which libseccomp compares.
const (
	equal = iota
	less
	greater
)

func class(op specs.LinuxSeccompOperator) int {
	switch op {
	case specs.OpLessThan, specs.OpLessEqual:
		return less
	case specs.OpGreaterThan, specs.OpGreaterEqual:
		return greater
	case specs.OpEqualTo, specs.OpNotEqual, specs.OpMaskedEqual:
	}
	return equal
}
