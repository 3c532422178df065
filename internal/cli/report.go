package cli

import (
	"io"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
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
	Error      *api.Error     `json:"error"`
}

func describe(err error) *api.Error {
	if err == nil {
		return nil
	}
	e := api.ErrorOf(err)
	if fumehood.ClassOf(err) == nil && exitCode(err) == exitUsage {
		e.Code = fumehood.CodeConfig
	}
	return &e
}

// write prints the object. err is the error of the run, or nil.
func (r *report) write(w io.Writer, err error) error {
	obj := reportJSON{Sandbox: r.sandbox, Image: r.image, StartMS: api.Millis(r.start), Error: describe(err)}
	if res := r.result; res != nil {
		outcome := string(res.Outcome)
		obj.Outcome, obj.ExitCode, obj.Signal, obj.Leaked = &outcome, &res.ExitCode, res.Signal, res.Leaked
		obj.Reason, obj.Usage = res.Reason, res.Usage
		obj.Stdout, obj.Stderr, obj.DurationMS = outputOf(res.Stdout), outputOf(res.Stderr), api.Millis(res.Duration)
	}
	return writeJSON(w, obj, obj.Stdout, obj.Stderr)
}
