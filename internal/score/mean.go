package score

import (
	"math/big"
	"strconv"
)

// Mean is the mean of numbers from 0 to 1. They count as the shortest decimal numbers that round to them, so the mean of 0.1, 0.2
// and 0.3 is 0.2, in any order. The zero value is the mean of no numbers. Its size does not depend on how many there are.
type Mean struct {
	sum   big.Rat
	count int64
	below bool // one is not 1
}

// Add adds a number.
func (m *Mean) Add(v float64) {
	if exact, ok := new(big.Rat).SetString(strconv.FormatFloat(v, 'g', -1, 64)); ok { // no NaN or infinity
		m.sum.Add(&m.sum, exact)
	}
	m.count++
	m.below = m.below || v != 1
}

// Value returns the mean, rounded to the nearest number; 0 without numbers. It is 1 only if each number is 1.
func (m *Mean) Value() float64 {
	if m.count == 0 {
		return 0
	}
	v, _ := new(big.Rat).Quo(&m.sum, new(big.Rat).SetInt64(m.count)).Float64()
	if m.below {
		const below1 = 1 - 1.0/(1<<53) // the largest float64 below 1
		return min(v, below1)
	}
	return v
}
