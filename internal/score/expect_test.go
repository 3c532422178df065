package score

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

func exited(code int, stdout, stderr string) *fumehood.Result {
	return &fumehood.Result{
		Outcome: fumehood.Exited, ExitCode: code,
		Stdout: fumehood.Output{Bytes: []byte(stdout), Total: int64(len(stdout))},
		Stderr: fumehood.Output{Bytes: []byte(stderr), Total: int64(len(stderr))},
	}
}

func stdout(text Text) *Expect { return &Expect{Stdout: &text} }

func TestExpect_Check(t *testing.T) {
	numbers := func(text string, absolute, relative float64) *Expect {
		return stdout(Text{Numbers: &Numbers{text, absolute, relative}})
	}
	for name, c := range map[string]struct {
		expect *Expect
		result *fumehood.Result
		says   string // empty if everything is as expected
	}{
		"default, 0":                    {&Expect{}, exited(0, "x", "y"), ""},
		"default, 1":                    {&Expect{}, exited(1, "", ""), "it exited with code 1, and was expected to exit with 0"},
		"another code":                  {&Expect{ExitCode: []int{3}}, exited(3, "", ""), ""},
		"one of several codes":          {&Expect{ExitCode: []int{0, 3}}, exited(3, "", ""), ""},
		"none of several codes":         {&Expect{ExitCode: []int{0, 3}}, exited(2, "", ""), "with code 2, and was expected to exit with 0 or 3"},
		"0 instead of 3":                {&Expect{ExitCode: []int{3}}, exited(0, "", ""), "with code 0"},
		"124 instead of a timeout":      {&Expect{Outcome: fumehood.TimedOut}, exited(124, "", ""), "exited with code 124, and was expected to have timed out"},
		"a timeout":                     {&Expect{Outcome: fumehood.TimedOut}, &fumehood.Result{Outcome: fumehood.TimedOut, ExitCode: -1}, ""},
		"an unexpected timeout":         {&Expect{}, &fumehood.Result{Outcome: fumehood.TimedOut, ExitCode: -1}, "it timed out"},
		"a signal":                      {&Expect{Outcome: fumehood.Signaled}, &fumehood.Result{Outcome: fumehood.Signaled, Signal: 11, ExitCode: 139}, ""},
		"an unexpected signal":          {&Expect{}, &fumehood.Result{Outcome: fumehood.Signaled, Signal: 11, ExitCode: 139}, "was ended by signal 11"},
		"code of a signal":              {&Expect{ExitCode: []int{139}}, &fumehood.Result{Outcome: fumehood.Signaled, Signal: 11, ExitCode: 139}, "was ended by signal 11"},
		"no memory":                     {&Expect{Outcome: fumehood.OutOfMemory}, &fumehood.Result{Outcome: fumehood.OutOfMemory}, ""},
		"exact":                         {stdout(Text{Exact: new("42\n")}), exited(0, "42\n", ""), ""},
		"exact, without the newline":    {stdout(Text{Exact: new("42\n")}), exited(0, "42", ""), `standard output is "42", and was expected to be "42\n"`},
		"exactly nothing":               {stdout(Text{Exact: new("")}), exited(0, "", ""), ""},
		"not exactly nothing":           {stdout(Text{Exact: new("")}), exited(0, " ", ""), `is " "`},
		"standard error":                {&Expect{Stderr: &Text{Exact: new("oops")}}, exited(0, "", "oops"), ""},
		"standard error is another":     {&Expect{Stderr: &Text{Exact: new("oops")}}, exited(0, "oops", ""), "standard error is"},
		"trimmed":                       {stdout(Text{Trimmed: new("a\nb")}), exited(0, "\n a  \r\nb\t\n\n", ""), ""},
		"trimmed keeps space within":    {stdout(Text{Trimmed: new("a b")}), exited(0, "a  b", ""), "but for white space"},
		"trimmed keeps indentation":     {stdout(Text{Trimmed: new("a\nb")}), exited(0, "a\n b", ""), "but for white space"},
		"contains":                      {stdout(Text{Contains: []string{"b", "a"}}), exited(0, "xaxb", ""), ""},
		"contains one only":             {stdout(Text{Contains: []string{"b", "a"}}), exited(0, "xa", ""), `without "b"`},
		"regexp":                        {stdout(Text{Regexp: `^\d+ ok$`}), exited(0, "12 ok", ""), ""},
		"regexp, elsewhere":             {stdout(Text{Regexp: `^\d+ ok$`}), exited(0, "12 ok\n", ""), "does not match"},
		"JSON":                          {stdout(Text{JSON: json.RawMessage(`{"a": [1, 2.50, null], "b": "x"}`)}), exited(0, ` {"b":"x","a":[1.0,25e-1,null]} `+"\n", ""), ""},
		"JSON, another number":          {stdout(Text{JSON: json.RawMessage(`{"a": [1, 2]}`)}), exited(0, `{"a": [1, 2.0000000000000000000001]}`, ""), `at "$.a[1]"`},
		"JSON, huge numbers":            {stdout(Text{JSON: json.RawMessage(`1e1000000000`)}), exited(0, `10e999999999`, ""), ""},
		"JSON, numbers beyond all":      {stdout(Text{JSON: json.RawMessage(`0`)}), exited(0, `1e99999999999999999999`, ""), `at "$"`},
		"JSON, zeros":                   {stdout(Text{JSON: json.RawMessage(`0`)}), exited(0, `-0.00e7`, ""), ""},
		"JSON, a sign":                  {stdout(Text{JSON: json.RawMessage(`1`)}), exited(0, `-1`, ""), `at "$"`},
		"JSON, a number as text":        {stdout(Text{JSON: json.RawMessage(`1`)}), exited(0, `"1"`, ""), `at "$"`},
		"JSON, true for 1":              {stdout(Text{JSON: json.RawMessage(`1`)}), exited(0, `true`, ""), `at "$"`},
		"JSON, a key too many":          {stdout(Text{JSON: json.RawMessage(`{"a":1}`)}), exited(0, `{"a":1,"b":2}`, ""), `at "$"`},
		"JSON, another key":             {stdout(Text{JSON: json.RawMessage(`{"a":null}`)}), exited(0, `{"b":null}`, ""), `at "$.a"`},
		"JSON, a key twice":             {stdout(Text{JSON: json.RawMessage(`{"a":1}`)}), exited(0, `{"a":2,"a":1}`, ""), "duplicate key"},
		"JSON, an item too many":        {stdout(Text{JSON: json.RawMessage(`[1]`)}), exited(0, `[1,2]`, ""), `at "$"`},
		"JSON and more":                 {stdout(Text{JSON: json.RawMessage(`1`)}), exited(0, `1 2`, ""), "more after"},
		"not JSON":                      {stdout(Text{JSON: json.RawMessage(`1`)}), exited(0, `one`, ""), "not JSON"},
		"JSON, cut short":               {stdout(Text{JSON: json.RawMessage(`[1]`)}), exited(0, `[1`, ""), "ends before"},
		"JSON, deep":                    {stdout(Text{JSON: json.RawMessage(`[1]`)}), exited(0, strings.Repeat("[", 100_000), ""), "levels"},
		"numbers":                       {numbers("area 3.14159", 1e-4, 0), exited(0, "area  3.1416\n", ""), ""},
		"numbers, off":                  {numbers("area 3.14159", 1e-6, 0), exited(0, "area 3.1416", ""), `has "3.1416" as word 2`},
		"numbers, relatively":           {numbers("1000000", 0, 1e-3), exited(0, "1e6 ", ""), ""},
		"numbers, either will do":       {numbers("1000000 0", 1, 1e-3), exited(0, "1000999 -1", ""), ""},
		"numbers, relatively off":       {numbers("1000000", 0, 1e-3), exited(0, "1002000", ""), "as word 1"},
		"numbers, another word":         {numbers("area 1", 1, 0), exited(0, "volume 1", ""), `"volume"`},
		"numbers, too many":             {numbers("1", 1, 0), exited(0, "1 1", ""), "has 2 words"},
		"numbers, NaN":                  {numbers("1", 1e300, 0), exited(0, "NaN", ""), "NaN"},
		"numbers, infinity":             {numbers("1", 1e300, 0), exited(0, "inf", ""), "inf"},
		"numbers, beyond a float64":     {numbers("1", 1e300, 0), exited(0, "1e999", ""), "1e999"},
		"numbers, one more":             {numbers("123456789012345678", 0, 0), exited(0, "123456789012345679", ""), "as word 1"},
		"numbers, half of one more":     {numbers("9007199254740992", 0.5, 0), exited(0, "9007199254740993", ""), "as word 1"},
		"numbers, long fractions":       {numbers("10000000000000000.9", 0.1, 0), exited(0, "10000000000000000.4", ""), "as word 1"},
		"numbers, tiny":                 {numbers("5e-400", 0, 0.1), exited(0, "1e-400", ""), "as word 1"},
		"numbers, tiny and near":        {numbers("5e-400", 0, 0.1), exited(0, "4.5e-400", ""), ""},
		"numbers, the absolute bound":   {numbers("0.1 -0.1", 1e-6, 0), exited(0, "0.100001 -0.100001", ""), ""},
		"numbers, above the bound":      {numbers("0.1", 1e-6, 0), exited(0, "0.10000100000000000000000000001", ""), "as word 1"},
		"numbers, the relative bound":   {numbers("331997010.5", 0, 1e-6), exited(0, "331997342.4970105", ""), ""},
		"numbers, of the expected one":  {numbers("100", 0, 0.1), exited(0, "110.00001", ""), "as word 1"},
		"numbers, beyond, equal":        {numbers("1e999999999", 0, 0), exited(0, "10e999999998", ""), ""},
		"numbers, beyond, near":         {numbers("1e999999999", 0, 0.01), exited(0, "1.01e999999999", ""), ""},
		"numbers, beyond, off":          {numbers("1e999999999", 0, 0.01), exited(0, "1.010001e999999999", ""), "as word 1"},
		"numbers, beyond and 1":         {numbers("1", 0, 0.01), exited(0, "1e-999999999", ""), "as word 1"},
		"numbers, exponents as text":    {numbers("1e99999999999 1", 1, 1), exited(0, "1e99999999999 1e-99999999999", ""), "as word 2"},
		"numbers, other forms":          {numbers("5 .5 +5 5. -0", 0, 0), exited(0, "+5. 0.50 5e0 0.05E+2 0", ""), ""},
		"numbers, hexadecimal":          {numbers("16", 0, 0), exited(0, "0x10", ""), "0x10"},
		"bytes, not UTF-8":              {stdout(Text{Exact: new("\xff")}), exited(0, "\xff", ""), ""},
		"JSON, not UTF-8":               {stdout(Text{JSON: json.RawMessage(`"\ufffd"`)}), exited(0, "\"\xff\"", ""), "it is not UTF-8"},
		"a terminal's bytes are quoted": {stdout(Text{Exact: new("a")}), exited(0, "\x1b[2J", ""), `"\x1b[2J"`},
		"truncated": {stdout(Text{Contains: []string{"a"}}), &fumehood.Result{
			Outcome: fumehood.Exited, Stdout: fumehood.Output{Bytes: []byte("a"), Total: 9},
		}, "too long to be compared: 9 bytes"},
		"truncated, not compared": {&Expect{}, &fumehood.Result{Outcome: fumehood.Exited, Stdout: fumehood.Output{Bytes: []byte("a"), Total: 9}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.expect.Validate(); err != nil {
				t.Fatal(err)
			}
			reasons, err := c.expect.Check(t.Context(), c.result)
			output := strings.Join(reasons, "; ")
			if err != nil || (output == "") != (c.says == "") || !strings.Contains(output, c.says) {
				t.Errorf("got %q, %v", output, err)
			}
		})
	}
}

// Numbers of a hostile program cost as little as their text.
func TestNumbers_hostile(t *testing.T) {
	long := strings.Repeat("7", 1<<20)
	n := &Numbers{Text: long + " " + long, Absolute: 0.123456789012345, Relative: 1.23456789012345e-7}
	began := time.Now()
	for _, got := range []string{long + " " + long + ".000001", "1e2000000000 1e-2000000000", long + " 0." + long + "e1048576"} {
		n.check(got)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestNumbers_random(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() string {
		text := strconv.Itoa(r.IntN(2000) - 1000)
		if r.IntN(2) == 0 {
			text += "." + strconv.Itoa(r.IntN(100))
		}
		return text + "e" + strconv.Itoa(r.IntN(7)-3)
	}
	rat := func(text string) *big.Rat { x, _ := new(big.Rat).SetString(text); return x }
	agree := 0
	for range 20_000 {
		want, got := random(), random()
		absolute, relative := float64(r.IntN(1000))/1000, float64(r.IntN(3000))/1000
		difference := new(big.Rat).Abs(new(big.Rat).Sub(rat(want), rat(got)))
		a := rat(strconv.FormatFloat(absolute, 'e', -1, 64))
		b := new(big.Rat).Mul(rat(strconv.FormatFloat(relative, 'e', -1, 64)), new(big.Rat).Abs(rat(want)))
		right := difference.Cmp(a) <= 0 || difference.Cmp(b) <= 0
		if right {
			agree++
		}
		if n := (&Numbers{Absolute: absolute, Relative: relative}); n.same(want, got) != right {
			t.Fatalf("%s for %s with %v and %v: got %v", got, want, absolute, relative, !right)
		}
	}
	if agree == 0 || agree == 20_000 {
		t.Errorf("%d of 20,000 agree", agree)
	}
}

// A row of data may contain an expression that takes hours for the output of a program.
func TestExpect_regexpCanceled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	e := stdout(Text{Regexp: "(?:" + strings.Repeat("[ab]{0,1000}", 30) + ")c$"})
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	reasons, err := e.Check(ctx, exited(0, strings.Repeat("a", 8<<20), ""))
	if !errors.Is(err, fumehood.ErrCanceled) || time.Since(began) > 10*time.Second {
		t.Errorf("after %v: %q, %v", time.Since(began), reasons, err)
	}
	for text, matches := range map[string]bool{"x\xffy": true, "x\ufffdy": true, "xy": false, "\nxäy\n": true} {
		if reasons, err := stdout(Text{Regexp: "(?m)^x.y$"}).Check(t.Context(), exited(0, text, "")); err != nil || (len(reasons) == 0) != matches {
			t.Errorf("%q: %q, %v", text, reasons, err)
		}
	}
}

func TestExpect_lost(t *testing.T) {
	_, err := (&Expect{}).Check(t.Context(), &fumehood.Result{Outcome: fumehood.Lost, ExitCode: -1, Reason: "the container died"})
	if !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "the container died") {
		t.Errorf("got %v", err)
	}
}

func TestExpect_Validate(t *testing.T) {
	for name, e := range map[string]*Expect{
		"outcome":           {Outcome: "gone"},
		"lost":              {Outcome: fumehood.Lost},
		"code of a timeout": {Outcome: fumehood.TimedOut, ExitCode: []int{1}},
		"regexp":            stdout(Text{Regexp: "("}),
		"json":              stdout(Text{JSON: json.RawMessage("{")}),
		"json twice":        stdout(Text{JSON: json.RawMessage(`{"a":1,"a":1}`)}),
		"tolerance":         stdout(Text{Numbers: &Numbers{Text: "1", Absolute: -1}}),
		"absent and more":   {Files: map[string]*File{"a": {Absent: true, Text: Text{Exact: new("x")}}}},
		"file's regexp":     {Files: map[string]*File{"a": {Text: Text{Regexp: "("}}}},
	} {
		if err := e.Validate(); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
