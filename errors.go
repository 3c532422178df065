package fumehood

import (
	"context"
	"errors"
	"io/fs"
	"strings"
)

// Code identifies a class of failure in JSON, journals and results.
type Code string

// The codes of the error classes, which have matching names.
const (
	CodeConfig          Code = "config"
	CodeBroken          Code = "broken"
	CodeUnavailable     Code = "unavailable"
	CodeInfrastructure  Code = "infrastructure"
	CodeLimit           Code = "limit"
	CodeCanceled        Code = "canceled"
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

// class is a sentinel error for errors.Is. A class may belong to a wider class, and may match an error of the
// standard library.
type class struct {
	code     Code
	text     string
	wider    error
	standard error
}

func (c *class) Error() string        { return c.text }
func (c *class) Unwrap() error        { return c.wider }
func (c *class) Is(target error) bool { return c.standard != nil && target == c.standard }

// The classes of failure. Every error that this module returns matches, with errors.Is, one of these seven or one of
// the file classes below; an error with several causes may match more. ClassOf returns the narrowest class. An error
// also matches the wider class that some classes belong to: ErrBroken to ErrUnavailable, ErrTooLarge to ErrLimit, and
// the reasons of a failed start to ErrNotStarted. Classes match the standard library errors of the same meaning:
// errors.ErrUnsupported, fs.ErrNotExist, fs.ErrPermission, fs.ErrExist. The error of a canceled call also matches
// context.Canceled or context.DeadlineExceeded.
var (
	// ErrConfig: the request is invalid and will fail again: a bad option, an unknown image.
	ErrConfig error = &class{code: CodeConfig, text: "invalid configuration"}
	// ErrUnavailable: the sandbox, the service or the daemon does not exist, or no longer does.
	ErrUnavailable error = &class{code: CodeUnavailable, text: "unavailable"}
	// ErrInfrastructure: our side failed: a broken connection, an internal error of the daemon. The same call may
	// succeed in a new sandbox.
	ErrInfrastructure error = &class{code: CodeInfrastructure, text: "infrastructure failure"}
	// ErrLimit: one of our limits was reached; the message states it.
	ErrLimit error = &class{code: CodeLimit, text: "limit reached"}
	// ErrCanceled: the caller's context ended first.
	ErrCanceled error = &class{code: CodeCanceled, text: "canceled"}
	// ErrUnsupported: this provider, transport or platform cannot do what was requested.
	ErrUnsupported error = &class{code: CodeUnsupported, text: "unsupported", standard: errors.ErrUnsupported}
	// ErrNotStarted: the program could not be started, so nothing ran. The classes below give the reason. Any other
	// reason, such as an argument list that is too long, has this class alone.
	ErrNotStarted error = &class{code: CodeNotStarted, text: "program not started"}
)

// ErrBroken reports that code in the sandbox made it unavailable: a program used up the memory or the processes, or
// killed something that the sandbox depends on. It is also an ErrUnavailable.
var ErrBroken error = &class{code: CodeBroken, text: "broken from inside", wider: ErrUnavailable}

// ErrFile reports that a file of the user is invalid, missing or not allowed: a task, an environment spec, a Compose
// file, a Dockerfile, a seccomp profile. It is also an ErrConfig, and has its code.
var ErrFile error = &class{code: CodeConfig, text: "invalid file", wider: ErrConfig}

// Reasons why a program could not be started. Each is also an ErrNotStarted.
var (
	// ErrProgramNotFound: no such program in the service.
	ErrProgramNotFound error = &class{code: CodeProgramNotFound, text: "program not found", wider: ErrNotStarted, standard: fs.ErrNotExist}
	// ErrNotExecutable: the file exists but may not be executed, or is not a program.
	ErrNotExecutable error = &class{code: CodeNotExecutable, text: "program not executable", wider: ErrNotStarted}
	// ErrDirNotFound: the working directory does not exist or cannot be entered.
	ErrDirNotFound error = &class{code: CodeDirNotFound, text: "working directory not found", wider: ErrNotStarted}
	// ErrUserNotFound: the user or group is unknown in the service. File operations return it too.
	ErrUserNotFound error = &class{code: CodeUserNotFound, text: "user not found", wider: ErrNotStarted}
)

// Errors of file operations. The error's Path is the path as given by the caller.
var (
	// ErrNotFound: no such file or directory.
	ErrNotFound error = &class{code: CodeNotFound, text: "not found", standard: fs.ErrNotExist}
	// ErrPermission: the user lacks the permission, or nobody may, as for a busy file or mount point, or one
	// that becomes shorter while it is downloaded.
	ErrPermission error = &class{code: CodePermission, text: "permission denied", standard: fs.ErrPermission}
	// ErrIsDirectory: a file was expected, but the path is a directory.
	ErrIsDirectory error = &class{code: CodeIsDirectory, text: "is a directory"}
	// ErrNotDirectory: a directory was expected, but the path is something else.
	ErrNotDirectory error = &class{code: CodeNotDirectory, text: "not a directory"}
	// ErrExists: the path already exists.
	ErrExists error = &class{code: CodeExists, text: "already exists", standard: fs.ErrExist}
	// ErrNotEmpty: the directory is not empty.
	ErrNotEmpty error = &class{code: CodeNotEmpty, text: "directory not empty", standard: fs.ErrExist}
	// ErrTooLarge: the file exceeds the limit stated in the message. It is also an ErrLimit.
	ErrTooLarge error = &class{code: CodeTooLarge, text: "too large", wider: ErrLimit}
	// ErrNotRegular: the path is a socket, a device or a pipe, which are never opened.
	ErrNotRegular error = &class{code: CodeNotRegular, text: "not a regular file"}
)

// Error describes a failure in detail. Match its class with errors.Is; get the details with errors.As.
type Error struct {
	Op      string // the operation: "exec", "read", "start sandbox"
	Service string // the service of the operation; empty if none
	Path    string // the file, as given by the caller; empty if none
	Class   error  // one of the Err variables of this package
	Err     error  // the cause; nil if the class is explanation enough
	Hint    string // what the user can do about it; may be empty
}

// Error returns the operation and its object, the reason for the failure, and the hint.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Path != "" {
		b.WriteString(" " + e.Path)
	}
	if e.Service != "" {
		b.WriteString(" in service " + e.Service)
	}
	if b.Len() > 0 && (e.Err != nil || e.Class != nil) { // a provider's error has no Op yet
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

// Unwrap returns the class and the cause.
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

// Code returns the code of the error's class.
func (e *Error) Code() Code { return CodeOf(e) }

// classes lists the classes in the order in which ClassOf tries them, narrow classes before wide ones.
var classes = []error{
	ErrProgramNotFound, ErrNotExecutable, ErrDirNotFound, ErrUserNotFound, ErrNotStarted,
	ErrNotFound, ErrPermission, ErrIsDirectory, ErrNotDirectory, ErrExists, ErrNotEmpty, ErrTooLarge,
	ErrNotRegular,
	ErrConfig, ErrBroken, ErrUnavailable, ErrCanceled, ErrUnsupported, ErrLimit, ErrInfrastructure,
}

// ClassOf returns the narrowest class that err matches, or nil if it matches none.
func ClassOf(err error) error {
	for _, c := range classes {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}

// CodeOf returns the code of the class of err, CodeInfrastructure if err has no class, and "" if err is nil.
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

// Cause returns why a context ended: its cause, which also matches context.Canceled or context.DeadlineExceeded. It
// returns nil if the context has not ended.
func Cause(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &ending{context.Cause(ctx), ctx.Err()}
}

// ending is an error with the text of the cause.
type ending struct{ cause, err error }

func (e *ending) Error() string   { return e.cause.Error() }
func (e *ending) Unwrap() []error { return []error{e.cause, e.err} }
