package fumehood

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
	"unicode/utf8"

	"github.com/fumehood/fumehood/internal/jsontext"
)

// millis is a duration encoded in JSON as a number of milliseconds.
type millis time.Duration

func (m millis) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(m) / float64(time.Millisecond))
}

func (m *millis) UnmarshalJSON(text []byte) error {
	var ms float64
	if err := json.Unmarshal(text, &ms); err != nil {
		return err
	}
	ns := math.Round(ms * float64(time.Millisecond))
	if math.Abs(ns) >= math.MaxInt64 {
		return fmt.Errorf("%g milliseconds are too long", ms)
	}
	*m = millis(ns)
	return nil
}

// The JSON forms embed the plain type and add its durations as numbers of milliseconds.
type (
	plainSpec Spec
	specJSON  struct {
		*plainSpec
		TTL *millis `json:"ttl_ms,omitzero"`
	}
	plainCompose Compose
	composeJSON  struct {
		*plainCompose
		Ready *millis `json:"ready_timeout_ms,omitzero"`
		Pull  *millis `json:"pull_timeout_ms,omitzero"`
		Build *millis `json:"build_timeout_ms,omitzero"`
	}
	plainProcess ProcessInfo
	processJSON  struct {
		*plainProcess
		Args []jsontext.Text `json:"args"`
	}
	plainResult Result
	resultJSON  struct {
		*plainResult
		Duration *millis `json:"duration_ms"`
	}
	plainUsage Usage
	usageJSON  struct {
		User   *millis `json:"user_ms"`
		System *millis `json:"system_ms"`
		*plainUsage
	}
)

// IsZero implements omitzero for durations.
func (m *millis) IsZero() bool { return *m == 0 }

func (s *Spec) json() *specJSON { return &specJSON{(*plainSpec)(s), (*millis)(&s.TTL)} }

func (c *Compose) json() *composeJSON {
	return &composeJSON{(*plainCompose)(c), (*millis)(&c.ReadyTimeout), (*millis)(&c.PullTimeout), (*millis)(&c.BuildTimeout)}
}

func (r *Result) json() *resultJSON { return &resultJSON{(*plainResult)(r), (*millis)(&r.Duration)} }

func (u *Usage) json() *usageJSON {
	return &usageJSON{(*millis)(&u.User), (*millis)(&u.System), (*plainUsage)(u)}
}

// MarshalJSON encodes the spec. Text that is not valid UTF-8 is an error, because JSON cannot represent it.
func (s Spec) MarshalJSON() ([]byte, error) {
	return encodeStrictly(s, s.json())
}

// UnmarshalJSON decodes a spec and replaces all fields except Journal and Logger. Unknown fields are an error.
func (s *Spec) UnmarshalJSON(text []byte) error {
	decoded := Spec{Journal: s.Journal, Logger: s.Logger}
	return decodeStrictly(text, s, &decoded, decoded.json())
}

// MarshalJSON encodes the project. Text that is not valid UTF-8 is an error, because JSON cannot represent it.
func (c Compose) MarshalJSON() ([]byte, error) {
	return encodeStrictly(c, c.json())
}

// UnmarshalJSON decodes a project. Unknown fields are an error.
func (c *Compose) UnmarshalJSON(text []byte) error {
	var decoded Compose
	return decodeStrictly(text, c, &decoded, decoded.json())
}

// MarshalJSON encodes the result. Its Duration is "duration_ms", in milliseconds. Bytes of its Reason that are not UTF-8
// are written as \xNN.
func (r Result) MarshalJSON() ([]byte, error) {
	r.Reason = jsontext.Escape(r.Reason)
	return jsontext.Marshal(r.json())
}

// UnmarshalJSON decodes a result. Unknown fields are ignored.
func (r *Result) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, r.json()) }

// MarshalJSON encodes the description. An argument is a string if it is UTF-8, or else an object {"base64": "..."}.
func (p ProcessInfo) MarshalJSON() ([]byte, error) {
	return json.Marshal(processJSON{(*plainProcess)(&p), jsontext.Of(p.Args)})
}

// UnmarshalJSON decodes a description. Unknown fields are ignored.
func (p *ProcessInfo) UnmarshalJSON(text []byte) error {
	form := processJSON{(*plainProcess)(p), jsontext.Of(p.Args)}
	err := json.Unmarshal(text, &form)
	p.Args = jsontext.Strings(form.Args)
	return err
}

// MarshalJSON encodes the usage. Times are in milliseconds.
func (u Usage) MarshalJSON() ([]byte, error) { return json.Marshal(u.json()) }

// UnmarshalJSON decodes a usage. Unknown fields are ignored.
func (u *Usage) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, u.json()) }

// outputJSON holds an output as text, and also as bytes if they are not valid UTF-8.
type outputJSON struct {
	Text      string `json:"text"`
	Base64    []byte `json:"base64,omitempty"`
	Bytes     int64  `json:"bytes"`
	Truncated bool   `json:"truncated"`
}

// MarshalJSON encodes the output as "text", "bytes" (the Total) and "truncated". "base64" holds Bytes if they are
// not valid UTF-8.
func (o Output) MarshalJSON() ([]byte, error) {
	out := outputJSON{Text: o.Text(), Bytes: o.Total, Truncated: o.Truncated()}
	if !utf8.Valid(o.Bytes) {
		out.Base64 = o.Bytes
	}
	return jsontext.Marshal(out)
}

// UnmarshalJSON decodes an output and restores its bytes.
func (o *Output) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	var out outputJSON
	if err := json.Unmarshal(text, &out); err != nil {
		return err
	}
	*o = Output{Bytes: out.Base64, Total: out.Bytes}
	if out.Base64 == nil && out.Text != "" {
		o.Bytes = []byte(out.Text)
	}
	return nil
}

// checkTexts rejects strings that are not valid UTF-8, which encoding/json would alter.
func checkTexts(v reflect.Value) error {
	var errs []error
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			errs = append(errs, fmt.Errorf("%q is not valid UTF-8", v.String()))
		}
	case reflect.Slice:
		for i := range v.Len() {
			errs = append(errs, checkTexts(v.Index(i)))
		}
	case reflect.Map:
		for k, e := range v.Seq2() {
			errs = append(errs, checkTexts(k), checkTexts(e))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "" {
				errs = append(errs, checkTexts(v.Field(i)))
			}
		}
	}
	return errors.Join(errs...)
}

// encodeStrictly encodes by, the JSON form of value. It fails if a string in value is not valid UTF-8.
func encodeStrictly(value, by any) ([]byte, error) {
	if err := checkTexts(reflect.ValueOf(value)); err != nil {
		return nil, err
	}
	return json.Marshal(by)
}

// decodeStrictly decodes text into by, the JSON form of value, and sets to on success. "null" leaves to unchanged.
func decodeStrictly[T any](text []byte, to, value *T, by any) error {
	if string(text) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(by)
	if err == nil {
		*to = *value
	}
	return err
}
