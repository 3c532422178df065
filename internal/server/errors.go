package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
)

// errorAnswer is the body of every answer that is not a success.
type errorAnswer struct {
	status int
	Body   api.Error `json:"error"`
}

// opRead is the operation of errors about what a client sent.
const opRead = "read request"

func newAnswer(status int, code fumehood.Code, op, message string) *errorAnswer {
	return &errorAnswer{status: status, Body: api.Error{Code: code, Op: op, Message: message}}
}

func (f *errorAnswer) Error() string  { return f.Body.Message }
func (f *errorAnswer) GetStatus() int { return f.status }

// statuses are the HTTP statuses of error codes. Clients tell errors apart by their codes.
var statuses = map[fumehood.Code]int{
	fumehood.CodeConfig: http.StatusBadRequest, fumehood.CodeUnavailable: http.StatusNotFound, fumehood.CodeBroken: http.StatusConflict,
	fumehood.CodeInfrastructure: http.StatusBadGateway, fumehood.CodeLimit: http.StatusTooManyRequests, fumehood.CodeCanceled: http.StatusConflict,
	fumehood.CodeUnsupported: http.StatusUnprocessableEntity, fumehood.CodeNotStarted: http.StatusUnprocessableEntity,
	fumehood.CodeProgramNotFound: http.StatusUnprocessableEntity, fumehood.CodeNotExecutable: http.StatusUnprocessableEntity,
	fumehood.CodeDirNotFound: http.StatusUnprocessableEntity, fumehood.CodeUserNotFound: http.StatusUnprocessableEntity,
	fumehood.CodeNotFound: http.StatusNotFound, fumehood.CodePermission: http.StatusForbidden, fumehood.CodeTooLarge: http.StatusRequestEntityTooLarge,
	api.CodeStale: http.StatusGone, api.CodeSandboxNotFound: http.StatusNotFound,
}

// toAnswer returns an error as an answer.
func toAnswer(err error) error {
	var f *errorAnswer
	if err == nil || errors.As(err, &f) {
		return err
	}
	f = &errorAnswer{Body: errorOf(err)}
	if _, is := errors.AsType[*provider.ProcessLimit](err); is {
		f.Body.Limit = api.LimitProcesses
	}
	f.status = statuses[f.Body.Code]
	if f.status == 0 { // the other errors of file operations
		f.status = http.StatusConflict
	}
	return f
}

// errorOf returns the JSON form of an error, with what only a server's errors have.
func errorOf(err error) api.Error {
	e := api.ErrorOf(err)
	if sick, ok := errors.AsType[*provider.Unhealthy](err); ok {
		e.Unhealthy = sick.Service
	}
	if refused, ok := errors.AsType[refusal](err); ok {
		e.Flag = refused.flag
	}
	if _, ok := errors.AsType[noSandbox](err); ok {
		e.Code = api.CodeSandboxNotFound
	}
	return e
}

// refusal is the cause of an error about a request that a flag of the server does not permit.
type refusal struct {
	error
	flag string // without its dashes
}

func (r refusal) Unwrap() error { return r.error }

// noSandbox is the cause of an error about a sandbox that does not exist, or no longer does.
type noSandbox struct{ error }

func (n noSandbox) Unwrap() error { return n.error }

// bad returns an error about a request.
func bad(format string, a ...any) error {
	return &fumehood.Error{Op: opRead, Class: fumehood.ErrConfig, Err: fmt.Errorf(format, a...)}
}

// unauthorizedError returns an error about a request that is not allowed, with the flag that allows it and a hint for the user.
func unauthorizedError(flag, hint, format string, a ...any) error {
	return &fumehood.Error{Op: "check request", Class: fumehood.ErrPermission, Err: refusal{fmt.Errorf(format, a...), flag}, Hint: hint}
}

// limitError returns an error about a limit that a flag sets.
func limitError(op, flag, hint, format string, a ...any) error {
	return &fumehood.Error{Op: op, Class: fumehood.ErrLimit, Err: refusal{fmt.Errorf(format, a...), flag}, Hint: hint}
}

// missing returns an error about an id that the lease does not have.
func missing(kind, id string) error {
	err := errors.New("the lease has none with this id")
	if kind == "sandbox" {
		err = noSandbox{err}
	}
	return &fumehood.Error{Op: "find " + kind + " " + id, Class: fumehood.ErrUnavailable, Err: err}
}

// stale returns an error about a lease or key that this server does not have.
func stale(why string) error {
	return newAnswer(http.StatusGone, api.CodeStale, "find lease", why)
}

// setErrors makes huma's own errors, about requests that do not fit the schema, look like all others, and a name in another
// case unknown: package encoding/json takes it, after the schema has checked another field. huma has variables for this.
var setErrors = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		e := api.Error{Code: fumehood.CodeConfig, Op: opRead, Message: message}
		if message == "cannot read request body" { // the client's connection or coding broke
			status = http.StatusBadRequest
		}
		switch status {
		case http.StatusRequestEntityTooLarge:
			e.Code = fumehood.CodeTooLarge
		case http.StatusInternalServerError:
			e.Code = fumehood.CodeInfrastructure
		}
		var details []string
		for _, err := range errs {
			var detail *huma.ErrorDetail
			switch {
			case err == nil:
			case errors.As(err, &detail): // without its value, which could be a secret
				_, at, _ := strings.Cut(detail.Location, ".") // without "body" and "query": the fields' names are enough
				details = append(details, strings.TrimPrefix(at+": ", ": ")+detail.Message)
			default:
				details = append(details, err.Error())
			}
		}
		if len(details) > 0 {
			e.Message += ": " + strings.Join(details, "; ")
		}
		return &errorAnswer{status: status, Body: e}
	}
})

// fail writes an error outside of the API's own handlers.
func fail(w http.ResponseWriter, f *errorAnswer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(f) // the client may be gone
}
