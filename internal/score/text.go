package score

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
)

// isZero reports whether there are no checks, so that any text is accepted.
func (t *Text) isZero() bool {
	return t.Exact == nil && t.Trimmed == nil && len(t.Contains) == 0 && t.Regexp == "" && t.JSON == nil && t.Numbers == nil
}

func (t *Text) validate() error {
	if t == nil {
		return nil
	}
	if _, err := regexp.Compile(t.Regexp); err != nil {
		return err
	}
	if t.JSON != nil {
		if _, err := parseJSON(t.JSON); err != nil {
			return err
		}
	}
	if n := t.Numbers; n != nil {
		for _, tolerance := range []float64{n.Absolute, n.Relative} {
			if !(tolerance >= 0) || math.IsInf(tolerance, 0) {
				return fmt.Errorf("the tolerance %v is not a finite number from 0 on", tolerance)
			}
		}
	}
	return nil
}

// check returns what is wrong with a text, as phrases after its name. The end of ctx stops it with an error.
func (t *Text) check(ctx context.Context, got []byte) (reasons []string, err error) {
	miss := func(format string, a ...any) { reasons = append(reasons, fmt.Sprintf(format, a...)) }
	if t.Exact != nil && string(got) != *t.Exact {
		miss("is %s, and was expected to be %s", quote(got), quote(*t.Exact))
	}
	if t.Trimmed != nil && trimText(string(got)) != trimText(*t.Trimmed) {
		miss("is %s, and was expected to be %s but for white space at the ends of lines", quote(got), quote(*t.Trimmed))
	}
	for _, part := range t.Contains {
		if !bytes.Contains(got, []byte(part)) {
			miss("is %s, without %s", quote(got), quote(part))
		}
	}
	if t.Regexp != "" {
		re, err := regexp.Compile(t.Regexp)
		found := err == nil && re.MatchReader(&runes{ctx: ctx, Reader: bytes.NewReader(got)})
		if ctx.Err() != nil {
			return nil, &fumehood.Error{Op: "match a regular expression", Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
		}
		if !found {
			miss("is %s, which %s does not match", quote(got), quote(t.Regexp))
		}
	}
	if t.JSON != nil {
		if why := differAsJSON(got, t.JSON); why != "" {
			miss("%s", why)
		}
	}
	if t.Numbers != nil {
		if why := t.Numbers.check(string(got)); why != "" {
			miss("%s", why)
		}
	}
	return reasons, nil
}

// runes reads the runes of a text until ctx ends. For each rune, a regular expression may check thousands of
// states.
type runes struct {
	ctx context.Context
	*bytes.Reader
}

func (r *runes) ReadRune() (rune, int, error) {
	if r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	return r.Reader.ReadRune()
}

// trimText returns a text without white space at its beginning, its end and the ends of its lines.
func trimText(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\r\v\f")
	}
	return strings.Join(lines, "\n")
}

// quote returns the beginning of a text, quoted on one line.
func quote[T []byte | string](text T) string {
	const most = 100
	if len(text) > most {
		return fmt.Sprintf("%q... (%d bytes)", string(text[:most]), len(text))
	}
	return strconv.Quote(string(text))
}

// check returns what is wrong with a text of words, or "".
func (n *Numbers) check(got string) string {
	want, have := strings.Fields(n.Text), strings.Fields(got)
	if len(want) != len(have) {
		return fmt.Sprintf("has %d words, and was expected to have %d", len(have), len(want))
	}
	for i := range want {
		if !n.same(want[i], have[i]) {
			return fmt.Sprintf("has %s as word %d, and was expected to have %s", quote(have[i]), i+1, quote(want[i]))
		}
	}
	return ""
}

func (n *Numbers) same(want, have string) bool {
	if want == have {
		return true
	}
	a, okA := parseDecimal(want)
	b, okB := parseDecimal(have)
	if !okA || !okB {
		return false
	}
	return agrees(a, b, n.Absolute, n.Relative)
}
