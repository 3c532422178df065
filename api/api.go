// Package api has the JSON types of Fumehood's server, beside those of package fumehood: Spec, Result, Connection and
// their parts. The command line's --json and the clients of other languages use the same.
package api

import (
	"archive/tar"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
)

// Number is the number of the API: clients and servers with different numbers do not fit.
const Number = 1

// Codes of errors that only a server has, beside those of package fumehood.
const (
	// CodeStale: the lease or key is of another server, or has ended. What it ran is never run again.
	CodeStale fumehood.Code = "stale"
	// CodeSandboxNotFound: the sandbox does not exist, or no longer does, for this client. It is a fumehood.ErrUnavailable.
	CodeSandboxNotFound fumehood.Code = "sandbox-not-found"
)

// Version describes a server.
type Version struct {
	Version  string `json:"version" doc:"version of the program"`
	API      int    `json:"api" doc:"number of the API"`
	Instance string `json:"instance" doc:"random name of this server's process; leases and keys begin with it"`
}

// Hello is the line that a server prints when it was started with --stdio.
type Hello struct {
	Address string `json:"address"` // unix:PATH
	Version
}

// LimitProcesses is the Limit of an Error.
const LimitProcesses = "processes"

// Error describes a failure. How a program ended is never an Error.
type Error struct {
	Code      fumehood.Code `json:"class" doc:"class of the failure, one of the codes"`
	Message   string        `json:"message" doc:"what failed and why, without the hint; bytes that are not UTF-8 are written as \\xNN"`
	Op        string        `json:"op,omitempty" doc:"the operation that failed"`
	Service   string        `json:"service,omitempty" doc:"the service of the operation"`
	Path      Text          `json:"path,omitempty" doc:"the file, as given by the caller"`
	Hint      string        `json:"hint,omitempty" doc:"what the user can do about it"`
	Flag      string        `json:"flag,omitempty" doc:"the flag of fumehood serve, without its dashes, that permits it or sets the limit"`
	Unhealthy string        `json:"unhealthy,omitempty" doc:"the service whose own health check has failed, of a start"`
	Limit     string        `json:"limit,omitempty" doc:"processes if a command did not start because the sandbox's limit on processes is reached"`
}

// ErrorOf returns the JSON form of an error.
func ErrorOf(err error) Error {
	e := Error{Code: fumehood.CodeOf(err), Message: err.Error()}
	var typed *fumehood.Error
	if errors.As(err, &typed) {
		plain := *typed
		plain.Hint = ""
		e.Op, e.Service, e.Path, e.Hint = typed.Op, typed.Service, Text(typed.Path), typed.Hint
		if err.Error() == typed.Error() {
			e.Message = plain.Error()
		}
		for cause := typed.Err; errors.As(cause, &typed); cause = typed.Err {
			e.Service, e.Path, e.Hint = cmp.Or(e.Service, typed.Service), cmp.Or(e.Path, Text(typed.Path)), cmp.Or(e.Hint, typed.Hint)
		}
	}
	e.Message, e.Op, e.Hint = jsontext.Escape(e.Message), jsontext.Escape(e.Op), jsontext.Escape(e.Hint)
	return e
}

// Lease is what a client holds its sandboxes by.
type Lease struct {
	ID    string  `json:"id" doc:"secret name of the lease; keys begin with it and a minus sign"`
	Grace float64 `json:"grace_ms" doc:"milliseconds for which the lease outlives its last connection or heartbeat"`
}

// Sandbox describes a sandbox.
type Sandbox struct {
	ID string `json:"id" doc:"name of the sandbox in paths"`
	fumehood.Info
	Kept    bool      `json:"kept,omitempty" doc:"it outlives its lease"`
	Expires time.Time `json:"expires,omitzero" doc:"when a kept sandbox is removed"`
	// Created and States are only in a list of kept sandboxes. States are by service, as in provider.KeptSandbox.
	Created time.Time         `json:"created,omitzero" doc:"when it was started; only in a list, of a kept sandbox"`
	States  map[string]string `json:"states,omitempty" doc:"for display, by service; only in a list, of a kept sandbox"`
	Reason  string            `json:"provider_reason,omitempty" doc:"why the server has this provider, if it is because the Docker Engine refuses its user"`
}

// Cmd is a command. The fields are those of fumehood.Cmd.
type Cmd struct {
	Args      []Text   `json:"args" minItems:"1" doc:"program and arguments, without a shell"`
	Dir       Text     `json:"dir,omitempty" doc:"working directory"`
	Env       Env      `json:"env,omitempty" doc:"added variables"`
	User      string   `json:"user,omitempty" doc:"name, uid, name:group or uid:gid"`
	Stdin     []byte   `json:"stdin,omitempty" doc:"standard input in base64"`
	StdinPipe bool     `json:"stdin_pipe,omitempty" doc:"leave standard input open for writes; only to start"`
	Events    bool     `json:"events,omitempty" doc:"its events will be followed: for 5 s at most, it waits for the reader rather than lose output; only to start"`
	Detach    bool     `json:"detach,omitempty" doc:"run on after the lease, in a kept sandbox; only to start"`
	Timeout   float64  `json:"timeout_ms,omitempty" minimum:"0" doc:"milliseconds after which it is killed; 0 means no limit"`
	CPUTime   float64  `json:"cpu_time_ms,omitempty" minimum:"0" doc:"milliseconds of processor time, of it and all its descendants together, after which it is killed; 0 means no limit"`
	Grace     float64  `json:"grace_ms,omitempty" minimum:"-1" doc:"milliseconds between SIGTERM and SIGKILL; 0 means 1000, -1 none"`
	StdoutCap int64    `json:"stdout_cap,omitempty" minimum:"-1" doc:"bytes of standard output that the result keeps, of its end; 0 means 10 MiB, -1 none"`
	StderrCap int64    `json:"stderr_cap,omitempty" minimum:"-1" doc:"the same of standard error"`
	KillRest  bool     `json:"kill_rest,omitempty" doc:"kill the processes that the program leaves behind"`
	Rlimits   *Rlimits `json:"rlimits,omitempty"`
	ViaEngine bool     `json:"via_engine,omitempty" doc:"run it without the help of a process in the sandbox"`
	TTY       bool     `json:"tty,omitempty" doc:"give it a terminal"`
	Rows      uint16   `json:"rows,omitempty" maximum:"65535"`
	Cols      uint16   `json:"cols,omitempty" maximum:"65535"`
	Term      string   `json:"term,omitempty" doc:"type of the terminal"`
}

// Rlimits are limits of the kernel for each process of a command.
type Rlimits struct {
	CPU       int64 `json:"cpu,omitempty" minimum:"0" maximum:"1000000000" doc:"whole seconds of processor time"`
	FileSize  int64 `json:"file_size,omitempty" minimum:"0" doc:"bytes"`
	OpenFiles int64 `json:"open_files,omitempty" minimum:"0"`
	Processes int64 `json:"processes,omitempty" minimum:"0"`
}

// maxMillis is the longest time in milliseconds that a time.Duration holds.
const maxMillis = float64(1<<63-1) / float64(time.Millisecond)

// Duration returns milliseconds as a duration. Longer ones than it can have become the longest.
func Duration(millis float64) time.Duration {
	if millis >= maxMillis {
		return 1<<63 - 1
	}
	return time.Duration(millis * float64(time.Millisecond))
}

// Millis returns a duration in milliseconds with microsecond precision.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Command returns the command without its standard input.
func (c *Cmd) Command() fumehood.Cmd {
	cmd := fumehood.Cmd{
		Args: jsontext.Strings(c.Args), Dir: string(c.Dir), Env: c.Env, User: c.User, StdinPipe: c.StdinPipe, Events: c.Events, Detach: c.Detach, Timeout: Duration(c.Timeout), CPUTime: Duration(c.CPUTime),
		Grace: Duration(c.Grace), StdoutCap: c.StdoutCap, StderrCap: c.StderrCap, KillRest: c.KillRest, ViaEngine: c.ViaEngine,
		TTY: c.TTY, Rows: c.Rows, Cols: c.Cols, Term: c.Term,
	}
	if c.Grace < 0 {
		cmd.Grace = fumehood.NoGrace
	}
	if r := c.Rlimits; r != nil {
		cmd.Rlimits = fumehood.Rlimits{CPU: time.Duration(r.CPU) * time.Second, FileSize: r.FileSize, OpenFiles: r.OpenFiles, Processes: r.Processes}
	}
	return cmd
}

// Progress is a line of the stream of a preparation of images. The last one has the type end or error.
type Progress struct {
	Type    string            `json:"type" enum:"progress,end,error,heartbeat"`
	Image   string            `json:"image,omitempty" doc:"reference of the image, or name of the build"`
	Build   bool              `json:"build,omitempty" doc:"status is the step of a build that has begun"`
	Layer   string            `json:"layer,omitempty" doc:"of a pull; empty for the image as a whole"`
	Status  string            `json:"status,omitempty"`
	Current int64             `json:"current,omitempty" doc:"bytes of the layer"`
	Total   int64             `json:"total,omitempty" doc:"bytes of the layer; 0 if unknown"`
	Images  map[string]string `json:"images,omitempty" doc:"of end: ids of the images by service"`
	Error   *Error            `json:"error,omitempty"`
}

// Process describes a command that was started.
type Process struct {
	ID      string    `json:"id" doc:"name of the command in paths"`
	Args    []Text    `json:"args"`
	Started time.Time `json:"started"`
	Ended   bool      `json:"ended"`
	// Detached is its number among the service's detached commands, as in fumehood.ProcessInfo.
	Detached int  `json:"detached,omitempty" doc:"its number among the service's detached commands, from 1"`
	Stdin    bool `json:"stdin,omitempty" doc:"its standard input was left open for writes, of a detached command"`
}

// Types of events.
const (
	EventOutput    = "output"
	EventEnd       = "end"
	EventError     = "error"
	EventHeartbeat = "heartbeat"
	EventProgress  = "progress"
	EventEntry     = "entry"
)

// JournalLine is a line of the answer with a sandbox's journal. The last one has the type end or error.
type JournalLine struct {
	Type   string          `json:"type" enum:"entry,end,error"`
	Number int             `json:"number" doc:"number of the entry, from 1; those that are missing before the first one were dropped. Of end: that of the last entry"`
	Entry  json.RawMessage `json:"entry,omitempty" doc:"a line of docs/journal.md"`
	Error  *Error          `json:"error,omitempty" doc:"of error"`
}

// Event is a line of the stream of a command's events. The last one has the type end or error.
type Event struct {
	Type   string           `json:"type" enum:"output,end,error,heartbeat"`
	Stream string           `json:"stream,omitempty" enum:"stdout,stderr" doc:"of output"`
	Offset int64            `json:"offset,omitempty" doc:"position of data in its stream, in bytes; bytes before it were dropped if there is a gap"`
	Data   []byte           `json:"data,omitempty" doc:"output in base64"`
	Result *fumehood.Result `json:"result,omitempty" doc:"of end"`
	Error  *Error           `json:"error,omitempty"`
}

// FileInfo describes a file.
type FileInfo struct {
	Name     Text      `json:"name" doc:"base name"`
	Path     Text      `json:"path,omitempty" doc:"in a walk: relative to its root"`
	Type     string    `json:"type" enum:"file,directory,symlink,pipe,socket,device,other"`
	Size     int64     `json:"size,omitempty" doc:"bytes of a regular file"`
	Mode     int       `json:"mode,omitempty" doc:"permission, set-id and sticky bits"`
	Modified time.Time `json:"modified,omitzero"`
	Target   Text      `json:"target,omitempty" doc:"of a symbolic link"`
	UID      int       `json:"uid" doc:"-1 if unknown"`
	GID      int       `json:"gid" doc:"-1 if unknown"`
}

// FileInfoOf returns the JSON form of a file's description.
func FileInfoOf(f fumehood.FileInfo) FileInfo {
	info := FileInfo{
		Name: Text(f.Name), Type: "other", Size: f.Size, Mode: int(f.Mode.Perm()), Modified: f.ModTime, Target: Text(f.LinkTarget), UID: f.UID, GID: f.GID,
	}
	switch t := f.Mode.Type(); {
	case t == 0:
		info.Type = "file"
	case t&fs.ModeDir != 0:
		info.Type = "directory"
	case t&fs.ModeSymlink != 0:
		info.Type = "symlink"
	case t&fs.ModeNamedPipe != 0:
		info.Type = "pipe"
	case t&fs.ModeSocket != 0:
		info.Type = "socket"
	case t&fs.ModeDevice != 0:
		info.Type = "device"
	}
	for bit, mode := range map[fs.FileMode]int{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if f.Mode&bit != 0 {
			info.Mode |= mode
		}
	}
	return info
}

// Mode returns permission, set-id and sticky bits as package io/fs has them. Other bits are dropped: the schemas of all
// modes exclude them.
func Mode(mode int) fs.FileMode {
	return (&tar.Header{Mode: int64(mode & 0o7777)}).FileInfo().Mode()
}
