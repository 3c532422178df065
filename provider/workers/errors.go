package workers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/provider"
)

// classes are the classes of errors by their codes.
var classes = byCode(
	fumehood.ErrConfig, fumehood.ErrUnavailable, fumehood.ErrBroken, fumehood.ErrInfrastructure, fumehood.ErrLimit, fumehood.ErrCanceled,
	fumehood.ErrUnsupported, fumehood.ErrNotStarted, fumehood.ErrProgramNotFound, fumehood.ErrNotExecutable, fumehood.ErrDirNotFound,
	fumehood.ErrUserNotFound, fumehood.ErrNotFound, fumehood.ErrPermission, fumehood.ErrIsDirectory, fumehood.ErrNotDirectory,
	fumehood.ErrExists, fumehood.ErrNotEmpty, fumehood.ErrTooLarge, fumehood.ErrNotRegular,
)

func byCode(all ...error) map[fumehood.Code]error {
	m := map[fumehood.Code]error{api.CodeStale: fumehood.ErrUnavailable, api.CodeSandboxNotFound: fumehood.ErrUnavailable}
	for _, class := range all {
		m[fumehood.CodeOf(class)] = class
	}
	return m
}

// refusal is the cause of an error that a worker has answered with.
type refusal struct {
	answer api.Error
	status int
	text   string // the message without operation, service and path, if it is about a service
}

func (r *refusal) Error() string { return r.text }

// errorOf returns the error that a worker has answered with. It has no operation: the caller knows it.
func errorOf(e api.Error, status int) error {
	class := classes[e.Code]
	if class == nil {
		class = fumehood.ErrInfrastructure
	}
	r := &refusal{answer: e, status: status, text: e.Message}
	if e.Service != "" { // which, like the path, may be that of an inner error
		for _, about := range []fumehood.Error{{Op: e.Op, Service: e.Service, Path: string(e.Path)}, {Op: e.Op, Service: e.Service}, {Op: e.Op}} {
			if text, ok := strings.CutPrefix(e.Message, about.Error()+": "); ok {
				r.text = text
				break
			}
		}
	}
	typed := &fumehood.Error{Class: class, Err: r, Hint: e.Hint}
	if e.Limit == api.LimitProcesses {
		typed.Err = &provider.ProcessLimit{Text: r.text}
	}
	return typed
}

// startError returns the error of a start, with the operation, service and path that the worker states.
func startError(err error) error {
	var r *refusal
	if !errors.As(err, &r) || r.answer.Service == "" {
		return err
	}
	e := r.answer
	typed := &fumehood.Error{Op: e.Op, Service: e.Service, Path: string(e.Path), Class: fumehood.ClassOf(err), Err: r, Hint: e.Hint}
	if e.Unhealthy != "" {
		typed.Err = &provider.Unhealthy{Service: e.Unhealthy, Err: r}
	}
	return typed
}

// codeOf returns the code of an error that a worker has answered with, else "".
func codeOf(err error) fumehood.Code {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.answer.Code
	}
	return ""
}

const (
	maxError  = 1 << 20 // bytes of the answer with an error
	mostShown = 300     // bytes of any other answer
)

// failure returns the error that an answer describes.
func failure(resp *http.Response) error {
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	var answer struct {
		Error api.Error `json:"error"`
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || answer.Error.Code == "" {
		return &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the worker answered with status %s: %s", resp.Status, box.Readable(string(text[:min(len(text), mostShown)])))}
	}
	return errorOf(answer.Error, resp.StatusCode)
}

// lostError is the cause of an error of a request without a whole answer.
type lostError struct {
	worker string
	err    error
	sent   bool // it may have arrived
}

func (l *lostError) Error() string { return "worker " + l.worker + ": " + l.err.Error() }
func (l *lostError) Unwrap() error { return l.err }

// asLost returns the cause of an error if the answer was lost.
func asLost(err error) (*lostError, bool) { return errors.AsType[*lostError](err) }

// isGone reports whether an error says that a sandbox, command or lease is not there any more.
func isGone(err error) bool {
	code := codeOf(err)
	return code == api.CodeSandboxNotFound || code == api.CodeStale || code == fumehood.CodeUnavailable
}
