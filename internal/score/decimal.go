package score

import (
	"regexp"
	"strconv"
	"strings"
)

// number matches decimal numbers. Other forms that Go parses, such as 0x1p4 and infinity, are excluded.
var number = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

// decimal is an exact number: its digits, without zeros at either end, times ten to the power of exponent. Equal
// numbers are equal in Go.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// parseDecimal reads a decimal number of any size without computing it. ok is false for other texts, and if the
// exponent takes more than 32 bits.
func parseDecimal(text string) (d decimal, ok bool) {
	if !number.MatchString(text) {
		return decimal{}, false
	}
	mantissa, exponentText := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponentText = text[:i], text[i+1:]
	}
	if exponentText != "" {
		var err error
		if d.exponent, err = strconv.ParseInt(exponentText, 10, 32); err != nil {
			return decimal{}, false
		}
	}
	mantissa, d.negative = strings.CutPrefix(strings.TrimPrefix(mantissa, "+"), "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(digits, "0")
	d.exponent += int64(len(digits) - len(d.digits) - len(fraction))
	if d.digits == "" {
		return decimal{}, true
	}
	return d, true
}

// sameNumber reports whether two JSON numbers are equal. Those with an exponent of more than 32 bits are compared as
// text.
func sameNumber(a, b string) bool {
	x, okX := parseDecimal(a)
	y, okY := parseDecimal(b)
	return okX && okY && x == y || a == b
}

// agrees reports whether got differs from want by at most absolute, or by at most relative times want's absolute value.
// The tolerances count as the shortest decimal numbers that round to them.
func agrees(want, got decimal, absolute, relative float64) bool {
	difference := []term{{1, want}, {-1, got}}
	switch sign(difference) {
	case 0:
		return true
	case -1:
		difference = []term{{-1, want}, {1, got}}
	}
	want.negative = false
	return sign(append(difference[:2:2], product(absolute, decimal{digits: "1"})...)) <= 0 ||
		sign(append(difference[:2:2], product(relative, want)...)) <= 0
}

// product returns terms whose sum is minus the tolerance times d: one for each of the tolerance's digits.
func product(tolerance float64, d decimal) []term {
	factor, _ := parseDecimal(strconv.FormatFloat(tolerance, 'e', -1, 64))
	var terms []term
	for i, digit := range []byte(factor.digits) {
		part := d
		part.exponent += factor.exponent + int64(len(factor.digits)-1-i)
		terms = append(terms, term{-int(digit - '0'), part})
	}
	return terms
}

// term is a factor from -9 to 9, times a decimal.
type term struct {
	factor int
	decimal
}

// top returns the power of ten of the first digit.
func (t term) top() int64 { return t.exponent + int64(len(t.digits)) - 1 }

// at returns factor times the digit of a power of ten.
func (t term) at(power int64) int {
	if power < t.exponent || power > t.top() {
		return 0
	}
	digit := int(t.digits[t.top()-power] - '0')
	if t.negative {
		digit = -digit
	}
	return t.factor * digit
}

// sign returns the sign of a sum: -1, 0 or 1. It adds digit by digit from the highest power of ten down, and stops when
// the lower digits cannot change the sign. So it needs no memory, and no more time than reading the digits, whatever
// the exponents are.
func sign(terms []term) int {
	bound := 0 // above what the lower digits of all terms can add, in units of the current power
	for _, t := range terms {
		bound += max(t.factor, -t.factor)
	}
	sum := 0
	power, more := next(terms, nil)
	for more {
		sum *= 10
		for _, t := range terms {
			sum += t.at(power)
		}
		switch {
		case sum >= bound:
			return 1
		case sum <= -bound:
			return -1
		case sum == 0:
			power, more = next(terms, &power)
		default:
			power--
		}
	}
	return 0
}

// next returns the highest power of ten below a limit for which a term has a digit; more is false if there is none.
func next(terms []term, below *int64) (power int64, more bool) {
	for _, t := range terms {
		if t.digits == "" {
			continue
		}
		top := t.top()
		if below != nil {
			top = min(top, *below-1)
		}
		if top >= t.exponent && (!more || top > power) {
			power, more = top, true
		}
	}
	return power, more
}
