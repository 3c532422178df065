package fumehood

import (
	"context"
	"errors"
	"io/fs"
	"strings"
)

// Code is the name of a class of failure for programs: in JSON, journals and results.
type Code string

// The codes, each of the class of the same name.
const (
	CodeConfig          Code = "config"
	CodeBroken          Code = "broken"
	CodeUnavailable     Code = "unavailable"
	CodeInfrastructure  Code = "infrastructure"
	CodeLimit           Code = "limit"
	CodeCancelled       Code = "cancelled"
	CodeUnsupported     Code = "unsupported"
	CodeNotStarted      Code = "not-started"
	CodeProgramNotFound Code = "program-not-found"
	CodeNotExecutable   Code = "not-executable"
	CodeDirNotFound     Code = "directory-not-found"
	CodeUserNotFound    Code = "user-not-found"
	CodeNotFound        Code = "not-found"
	CodePermission      Code = "permission-denied"
	CodeIsDirectory     Code = "is-a-directory"
	CodeNotDirectory    Code = "not-a-directory"
	CodeExists          Code = "already-exists"
	CodeNotEmpty        Code = "not-empty"
	CodeTooLarge        Code = "too-large"
	CodeNotRegular      Code = "not-a-regular-file"
)

// class is a sentinel that errors.Is can find; a class may belong to a wider one, and be one of the standard library's.
type class struct {
	code     Code
	text     string
	wider    error
	standard error
}

func (c *class) Error() string        { return c.text }
func (c *class) Unwrap() error        { return c.wider }
func (c *class) Is(target error) bool { return c.standard != nil && target == c.standard }

// The classes of failure. Every error that this module returns matches exactly one of the first seven
// with errors.Is, or one of the file classes below. They are the errors of the standard library, too, that mean the same:
// errors.ErrUnsupported, fs.ErrNotExist, fs.ErrPermission, fs.ErrExist; and what was cancelled is a context.Canceled or a
// context.DeadlineExceeded.
var (
	// ErrConfig: what was asked for is wrong, and will be wrong again: a bad option, an unknown image.
	ErrConfig error = &class{code: CodeConfig, text: "invalid configuration"}
	// ErrUnavailable: the sandbox, the service or the daemon is not there (any more).
	ErrUnavailable error = &class{code: CodeUnavailable, text: "unavailable"}
	// ErrInfrastructure: our side failed: a broken connection, a daemon's internal error. The same call
	// may succeed in a new sandbox.
	ErrInfrastructure error = &class{code: CodeInfrastructure, text: "infrastructure failure"}
	// ErrLimit: a limit of ours was met; the message states it.
	ErrLimit error = &class{code: CodeLimit, text: "limit reached"}
	// ErrCancelled: the caller's context ended first.
	ErrCancelled error = &class{code: CodeCancelled, text: "cancelled"}
	// ErrUnsupported: this provider, transport or platform cannot do what was asked.
	ErrUnsupported error = &class{code: CodeUnsupported, text: "unsupported", standard: errors.ErrUnsupported}
	// ErrNotStarted: the program could not be started, so nothing ran. The reasons are the classes
	// below; a reason that is none of them (an argument list that is too long) has this class alone.
	ErrNotStarted error = &class{code: CodeNotStarted, text: "program not started"}
)

// ErrBroken is the class of what is unavailable by what was done in the sandbox: a program there has used up its memory or its
// processes, or ended what it lives by. It is an ErrUnavailable too.
var ErrBroken error = &class{code: CodeBroken, text: "broken from inside", wider: ErrUnavailable}

// Why a program could not be started. Each is an ErrNotStarted too.
var (
	// ErrProgramNotFound: no such program in the service.
	ErrProgramNotFound error = &class{code: CodeProgramNotFound, text: "program not found", wider: ErrNotStarted, standard: fs.ErrNotExist}
	// ErrNotExecutable: the file is there and may not be executed, or is no program.
	ErrNotExecutable error = &class{code: CodeNotExecutable, text: "program not executable", wider: ErrNotStarted}
	// ErrDirNotFound: the working directory does not exist or cannot be entered.
	ErrDirNotFound error = &class{code: CodeDirNotFound, text: "working directory not found", wider: ErrNotStarted}
	// ErrUserNotFound: the user or group is unknown in the service. File operations have it too.
	ErrUserNotFound error = &class{code: CodeUserNotFound, text: "user not found", wider: ErrNotStarted}
)

// What can be wrong with a file. The error's Path is the path as the caller gave it.
var (
	// ErrNotFound: no such file or directory.
	ErrNotFound error = &class{code: CodeNotFound, text: "not found", standard: fs.ErrNotExist}
	// ErrPermission: the user may not do this.
	ErrPermission error = &class{code: CodePermission, text: "permission denied", standard: fs.ErrPermission}
	// ErrIsDirectory: a file was wanted and a directory is there.
	ErrIsDirectory error = &class{code: CodeIsDirectory, text: "is a directory"}
	// ErrNotDirectory: a directory was wanted and something else is there.
	ErrNotDirectory error = &class{code: CodeNotDirectory, text: "not a directory"}
	// ErrExists: something is there already.
	ErrExists error = &class{code: CodeExists, text: "already exists", standard: fs.ErrExist}
	// ErrNotEmpty: the directory has something in it.
	ErrNotEmpty error = &class{code: CodeNotEmpty, text: "directory not empty", standard: fs.ErrExist}
	// ErrTooLarge: the file is larger than the limit that the message states. It is an ErrLimit too.
	ErrTooLarge error = &class{code: CodeTooLarge, text: "too large", wider: ErrLimit}
	// ErrNotRegular: the path is a socket, a device or a pipe, which are never opened.
	ErrNotRegular error = &class{code: CodeNotRegular, text: "not a regular file"}
)

// Error is the detail of a failure. Match its class with errors.Is, get at the detail with errors.As.
type Error struct {
	Op      string // what was being done: "exec", "read", "start sandbox"
	Service string // the service it was done in; empty where there is none
	Path    string // the file, as the caller gave it; empty where there is none
	Class   error  // one of the Err variables of this package
	Err     error  // the cause; nil where the class says it all
	Hint    string // what the user can do about it; empty where we know nothing
}

// Error says what was done to which thing, why it failed, and what to do next.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Path != "" {
		b.WriteString(" " + e.Path)
	}
	if e.Service != "" {
		b.WriteString(" in service " + e.Service)
	}
	if b.Len() > 0 && (e.Err != nil || e.Class != nil) { // a provider's has no Op yet
		b.WriteString(": ")
	}
	switch {
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	case e.Class != nil:
		b.WriteString(e.Class.Error())
	}
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Unwrap gives the class and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Class != nil {
		errs = append(errs, e.Class)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// Code is that of the error's class.
func (e *Error) Code() Code { return CodeOf(e) }

// classes in the order in which ClassOf tries them: the narrow before the wide.
var classes = []error{
	ErrProgramNotFound, ErrNotExecutable, ErrDirNotFound, ErrUserNotFound, ErrNotStarted,
	ErrNotFound, ErrPermission, ErrIsDirectory, ErrNotDirectory, ErrExists, ErrNotEmpty, ErrTooLarge,
	ErrNotRegular,
	ErrConfig, ErrBroken, ErrUnavailable, ErrCancelled, ErrUnsupported, ErrLimit, ErrInfrastructure,
}

// ClassOf returns the class of err, the narrowest one that it matches, and nil where it has none.
func ClassOf(err error) error {
	for _, c := range classes {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}

// CodeOf returns the code of the class of err; CodeInfrastructure where it has none, and "" of nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var c *class
	if errors.As(ClassOf(err), &c) {
		return c.code
	}
	return CodeInfrastructure
}

// Ended is why a context has ended: its cause, which is a context.Canceled or a context.DeadlineExceeded too. It is nil where the
// context has not ended.
func Ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &ending{context.Cause(ctx), ctx.Err()}
}

// ending has the text of the cause.
type ending struct{ cause, err error }

func (e *ending) Error() string   { return e.cause.Error() }
func (e *ending) Unwrap() []error { return []error{e.cause, e.err} }
