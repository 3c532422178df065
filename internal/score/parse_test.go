package score

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/eval/task"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]task.Score{
		"1":                  {Value: 1},
		" 0.25\n":            {Value: 0.25},
		"-0":                 {},
		"1.000":              {Value: 1},
		`{"score": 0.5}`:     {Value: 0.5},
		`{"scores":{"a":1}}`: {Value: 1, Parts: map[string]float64{"a": 1}},
		`{"reasons":["x","y"],"score":0,"scores":{"a":1,"b":0.5}}`: {Parts: map[string]float64{"a": 1, "b": 0.5}, Reasons: []string{"x", "y"}},
		`{"scores":{"a":1,"b":0.5}}`:                               {Value: 0.75, Parts: map[string]float64{"a": 1, "b": 0.5}},
	} {
		if got, err := Parse([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if got, _ := Parse([]byte("-0")); math.Signbit(got.Value) {
		t.Error("the score is -0")
	}
}

func TestParse_invalid(t *testing.T) {
	for text, says := range map[string]string{
		"":                           "ends before",
		"passed":                     "not JSON",
		"1 1":                        "more after",
		"1\n{\"score\":1}":           "more after",
		"2":                          "not from 0 to 1",
		"-0.1":                       "not from 0 to 1",
		"1e999":                      "not from 0 to 1",
		"-1e-400":                    "not from 0 to 1",
		"0.99999999999999999999":     "too close to 1",
		"NaN":                        "not JSON",
		"true":                       "not a number",
		`"1"`:                        "not a number",
		"null":                       "not a number",
		"[1]":                        "not a number",
		"{}":                         "neither",
		`{"scores":{}}`:              "neither",
		`{"reasons":["x"]}`:          "neither",
		`{"score":null}`:             "not a number",
		`{"score":1,"score":0}`:      "duplicate key",
		`{"Score":1}`:                "unknown key",
		`{"score":1,"passed":true}`:  "unknown key",
		`{"scores":[1]}`:             "not an object",
		`{"scores":{"a":2}}`:         "not from 0 to 1",
		`{"scores":{"":1}}`:          "empty",
		`{"score":1,"reasons":"x"}`:  "not a list",
		`{"score":1,"reasons":[1]}`:  "not a text",
		`{"score":1`:                 "ends before",
		strings.Repeat(" ", 1<<20):   "more than",
		strings.Repeat("[", 100_000): "levels",
		`{"score":1,"reasons":[` + strings.Repeat(`"",`, 200) + `""]}`: "more than 100",
	} {
		if got, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), says) || !reflect.DeepEqual(got, task.Score{}) {
			t.Errorf("%.40s: %+v, %v", text, got, err)
		}
	}
}

func TestParse_mean(t *testing.T) {
	var b strings.Builder
	for i := range maxParts - 1 {
		fmt.Fprintf(&b, `"a%d":1,`, i)
	}
	text := `{"scores":{` + b.String() + `"last":0.9999999999999999}}`
	if got, err := Parse([]byte(text)); err != nil || got.Passed() {
		t.Errorf("got %v, %v", got.Value, err)
	}
	if got, err := Parse([]byte(`{"scores":{"a":0.1,"b":0.2,"c":0.3}}`)); err != nil || got.Value != 0.2 {
		t.Errorf("got %v, %v", got.Value, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"1", "0.5", `{"score":1,"scores":{"a":0.5},"reasons":["x"]}`, `{"score":1,"score":0}`, "1e999", "[[[", `{"scores":{"\ud800":1}}`, "-0"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			if !reflect.DeepEqual(s, task.Score{}) {
				t.Errorf("an error together with the score %+v", s)
			}
			return
		}
		check := func(v float64) {
			if !(v >= 0 && v <= 1) || math.Signbit(v) {
				t.Errorf("invalid score %v", v)
			}
		}
		check(s.Value)
		for _, v := range s.Parts {
			check(v)
		}
		if len(s.Parts) > maxParts || len(s.Reasons) > maxReasons {
			t.Errorf("%d parts, %d reasons", len(s.Parts), len(s.Reasons))
		}
	})
}
