package score

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fumehood/fumehood/eval/task"
)

// The limits of a grader's output.
const (
	maxPrinted = 256 << 10 // bytes of its standard output
	maxParts   = 1000      // number of scores by name
	maxReasons = 100
	maxText    = 2 << 10 // bytes of a name or a reason
)

// Parse parses the score that a grader has printed. It must be exactly one JSON value: a number from 0 to 1, or
// an object
//
//	{"score": 0.5, "scores": {"adds": 1, "subtracts": 0}, "reasons": ["3-2 is 5"]}
//
// with a score, scores by name, or both. Without a score, the score is the mean of the scores by name. Each score
// is from 0 to 1. Other keys and duplicate keys are errors.
func Parse(text []byte) (task.Score, error) {
	if len(text) > maxPrinted {
		return task.Score{}, fmt.Errorf("it has more than %d bytes", maxPrinted)
	}
	v, err := parseJSON(text)
	if err != nil {
		return task.Score{}, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		value, err := from0to1(v)
		return task.Score{Value: value}, err
	}
	var s task.Score
	given := false
	for key, v := range object {
		switch key {
		case "score":
			given = true
			s.Value, err = from0to1(v)
		case "scores":
			s.Parts, err = parts(v)
		case "reasons":
			s.Reasons, err = reasons(v)
		default:
			err = errors.New("unknown key: only score, scores and reasons are allowed")
		}
		if err != nil {
			return task.Score{}, fmt.Errorf("%s: %w", quote(key), err)
		}
	}
	switch {
	case given:
	case len(s.Parts) == 0:
		return task.Score{}, errors.New("it has neither a score nor scores")
	default:
		s.Value = meanOf(s.Parts)
	}
	return s, nil
}

// meanOf returns the mean of the parts. It is 1 only if each part is 1.
func meanOf(parts map[string]float64) float64 {
	var m Mean
	for _, v := range parts {
		m.Add(v)
	}
	return m.Value()
}

func from0to1(v any) (float64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, errors.New("it is not a number")
	}
	f, err := n.Float64()
	exact, _ := parseDecimal(n.String())
	if err != nil || !(f >= 0 && f <= 1) || exact.negative { // a negative number may be rounded to 0
		return 0, fmt.Errorf("%s is not from 0 to 1", quote(n.String()))
	}
	if f == 1 && exact != (decimal{digits: "1"}) { // rounded
		return 0, fmt.Errorf("%s is too close to 1 to be distinguished from it", quote(n.String()))
	}
	return f + 0, nil // converts -0 to 0
}

func parts(v any) (map[string]float64, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is not an object")
	}
	if len(object) > maxParts {
		return nil, fmt.Errorf("there are more than %d", maxParts)
	}
	all := map[string]float64{}
	for name, v := range object {
		if name == "" || len(name) > maxText {
			return nil, fmt.Errorf("the name %s is empty or longer than %d bytes", quote(name), maxText)
		}
		f, err := from0to1(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", quote(name), err)
		}
		all[name] = f
	}
	return all, nil
}

func reasons(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, errors.New("it is not a list")
	}
	if len(list) > maxReasons {
		return nil, fmt.Errorf("there are more than %d", maxReasons)
	}
	var all []string
	for _, v := range list {
		text, ok := v.(string)
		if !ok {
			return nil, errors.New("one of them is not a text")
		}
		if len(text) > maxText {
			text = strings.ToValidUTF8(text[:maxText], "") + "..."
		}
		all = append(all, text)
	}
	return all, nil
}
