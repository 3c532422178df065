package cli

import (
	"encoding/json"
	"io"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// holdingOutputs is the GOGC value of commands that hold outputs for a JSON object, since garbage of that size matters.
const holdingOutputs = 25

// report collects the data that `fumehood run --json` and `fumehood exec --json` print.
type report struct {
	sandbox, image string
	start          time.Duration
	result         *fumehood.Result
}

func (r *report) recordStart(info fumehood.Info, took time.Duration) {
	r.sandbox, r.image, r.start = info.Name, info.Services[0].Image, took
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

// noResult are the fields of a result that are null if no command ran to its end.
const noResult = `{"outcome":null,"exit_code":null,"stdout":null,"stderr":null,"duration_ms":0}`

// write prints an object with the fields of the result. err is the error of the run, or nil.
func (r *report) write(w io.Writer, err error) error {
	first := struct {
		Sandbox string  `json:"sandbox,omitempty"`
		Image   string  `json:"image,omitempty"`
		StartMS float64 `json:"start_ms"`
	}{r.sandbox, r.image, api.Millis(r.start)}
	var result any = json.RawMessage(noResult)
	if r.result != nil {
		result = r.result
	}
	return writeJSON(w, first, result, failure{describe(err)})
}

// failure is the last field of an object that is printed whether or not Fumehood failed.
type failure struct {
	Error *api.Error `json:"error"`
}

// writeJSON writes the fields of all values as one indented object.
func writeJSON(w io.Writer, values ...any) error {
	// The writer for people need not be closed: JSON ends with a newline, so no partial character remains.
	return api.Encode(forPeople(w), "  ", values...)
}
