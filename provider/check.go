package provider

import (
	"errors"

	"github.com/fumehood/fumehood"
)

// Status is the result of one check of a diagnosis.
type Status string

// The results of checks.
const (
	StatusOK   Status = "ok"
	StatusWarn Status = "warn" // works, with less isolation or convenience
	StatusFail Status = "fail" // sandboxes will not work
	StatusNote Status = "note" // a fact, neither good nor bad
)

// Check is one line of a diagnosis.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"` // what to do about a problem
}

// FailedCheck returns a failed check with the text and the hint of an error.
func FailedCheck(name string, err error) Check {
	if typed, ok := errors.AsType[*fumehood.Error](err); ok {
		return Check{Name: name, Status: StatusFail, Detail: typed.Err.Error(), Hint: typed.Hint}
	}
	return Check{Name: name, Status: StatusFail, Detail: err.Error()}
}
