package provider

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
