package cli

import (
	"errors"
	"io"
	"time"

	"github.com/fumehood/fumehood"
)

// report collects the data that `fumehood run --json` and `fumehood exec --json` print.
type report struct {
	sandbox, image string
	start          time.Duration
	result         *fumehood.Result
}

func (r *report) started(info fumehood.Info, took time.Duration) {
	r.sandbox, r.image, r.start = info.Name, info.Services[0].Image, took
}

// reportJSON is the JSON object. Outcome and ExitCode are null if no command ran to its end.
type reportJSON struct {
	Sandbox    string         `json:"sandbox,omitempty"`
	Image      string         `json:"image,omitempty"`
	Outcome    *string        `json:"outcome"`
	ExitCode   *int           `json:"exit_code"`
	Signal     int            `json:"signal,omitempty"`
	Leaked     bool           `json:"leaked,omitempty"`
	Reason     string         `json:"reason,omitempty"` // as in fumehood.Result
	Usage      fumehood.Usage `json:"usage,omitzero"`   // omitted if the transport does not report it
	Stdout     *outputJSON    `json:"stdout"`
	Stderr     *outputJSON    `json:"stderr"`
	StartMS    float64        `json:"start_ms"`
	DurationMS float64        `json:"duration_ms"`
	Error      *errorJSON     `json:"error"`
}

type errorJSON struct {
	Class   fumehood.Code `json:"class"`
	Message string        `json:"message"`
	Hint    string        `json:"hint,omitempty"`
}

func describe(err error) *errorJSON {
	if err == nil {
		return nil
	}
	e := &errorJSON{Class: fumehood.CodeOf(err), Message: err.Error()}
	if fumehood.ClassOf(err) == nil && exitCode(err) == exitUsage {
		e.Class = fumehood.CodeConfig
	}
	var detail *fumehood.Error
	for cause := err; errors.As(cause, &detail) && e.Hint == ""; cause = detail.Err {
		e.Hint = detail.Hint
	}
	return e
}

// write prints the object. err is the error of the run, or nil.
func (r *report) write(w io.Writer, err error) error {
	obj := reportJSON{Sandbox: r.sandbox, Image: r.image, StartMS: ms(r.start), Error: describe(err)}
	if res := r.result; res != nil {
		outcome := string(res.Outcome)
		obj.Outcome, obj.ExitCode, obj.Signal, obj.Leaked = &outcome, &res.ExitCode, res.Signal, res.Leaked
		obj.Reason, obj.Usage = res.Reason, res.Usage
		obj.Stdout, obj.Stderr, obj.DurationMS = outputOf(res.Stdout), outputOf(res.Stderr), ms(res.Duration)
	}
	return writeJSON(w, obj, obj.Stdout, obj.Stderr)
}

// ms returns a duration in milliseconds with microsecond precision.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
