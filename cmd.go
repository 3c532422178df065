package fumehood

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// DefaultOutputCap is how much of each output stream a Result keeps, in bytes, unless Cmd says.
	DefaultOutputCap = 10 << 20
	// KeepNone as a cap keeps nothing of a stream; it is still counted.
	KeepNone = -1
	// DefaultGrace is the time between SIGTERM and SIGKILL where a command is to end.
	DefaultGrace = time.Second
	// NoGrace as a grace is none.
	NoGrace time.Duration = -1
	// MaxReadFile is the largest file that ReadFile returns unless ReadOptions say, and the most that ReadRange returns, in bytes.
	MaxReadFile = 100 << 20
)

// Cmd is a command to run in a service. Only Args is needed.
type Cmd struct {
	// Args is the program and its arguments, handed over byte for byte; no shell sees them. A program
	// without a slash is looked up in the PATH of the command's environment.
	Args []string
	// Dir is the working directory; a relative one is below the service's. Empty means the service's.
	Dir string
	// Env is added to the service's environment, and wins over it. Values are handed over byte for byte.
	Env map[string]string
	// User is "name", "uid", "name:group" or "uid:gid" as the service knows them. Empty means the
	// service's, or the one that Service.As named.
	User string

	// Stdin is read until its end and passed on. Nil means an empty standard input. When the command
	// ends while a Read blocks, that Read is left behind and its data is lost.
	Stdin io.Reader
	// StdinPipe leaves standard input open for Process.Write and Process.CloseStdin. Only with Start,
	// and not together with Stdin.
	StdinPipe bool

	// Stdout and Stderr are written to as the output comes, by one goroutine at a time. The command is held back while a
	// Write blocks, and its end waits for it. A Write that fails ends the command, and is an ErrConfig. The Result has the
	// output as well, unless a cap is KeepNone. Nil writes nothing. Not for a detached command.
	Stdout, Stderr io.Writer

	// Detach makes the end of Start's context leave the command running: it ends by itself, by a kill, by
	// its wall limit, or at the latest when the sandbox is closed. Service.Processes lists it until it is
	// forgotten, for which see Process.Forget. Its output can be followed, but it has no events.
	// Only with Start. In a sandbox that is kept, by a provider that is an Opener, it outlives the closing too,
	// and this process: see Service.RefreshProcesses. There it is not for ViaEngine, which is an ErrUnsupported.
	Detach bool

	// Timeout limits the time from start to end on the host's clock; then the command is killed and its
	// outcome is TimedOut. 0 means no limit.
	Timeout time.Duration
	// StdoutCap and StderrCap limit what the Result keeps of each stream, in bytes: the end of the
	// stream is kept, and Output says how much there was. 0 means DefaultOutputCap, KeepNone nothing.
	StdoutCap, StderrCap int64

	// Grace is how long a command that is to end may take from SIGTERM to SIGKILL. 0 means DefaultGrace,
	// NoGrace that SIGKILL comes at once.
	Grace time.Duration

	// KillRest kills what the program has left running when it ends, before the Result comes. Else that lives on until the
	// sandbox is closed. Where the provider cannot do it the Result says Leaked.
	KillRest bool

	// Rlimits limit each of the command's processes. The zero value sets no limit.
	Rlimits Rlimits

	// ViaEngine runs the command without the help of anything in the sandbox, where the provider has such
	// a way: by the Engine's own exec under docker. It is slower and has its limits (docs/promises.md);
	// it is for a command that must not trust what the code under test may have meddled with.
	ViaEngine bool

	// TTY gives the command a terminal. Both streams come as standard output then.
	TTY bool
	// Rows and Cols are the terminal's first size in characters; 0 means 24 by 80. Only with TTY.
	Rows, Cols uint16
}

// Validate checks what can be checked without a sandbox. Its errors are ErrConfig.
func (c *Cmd) Validate() error {
	bad := func(format string, a ...any) error {
		return &Error{Class: ErrConfig, Err: fmt.Errorf(format, a...)}
	}
	if len(c.Args) == 0 || c.Args[0] == "" {
		return bad("the command is empty")
	}
	for i, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			return bad("argument %d contains a NUL byte", i)
		}
	}
	for k, v := range c.Env {
		if err := checkEnv(k, v); err != nil {
			return bad("%w", err)
		}
	}
	if strings.ContainsRune(c.Dir, 0) || strings.ContainsRune(c.User, 0) {
		return bad("the working directory or the user contains a NUL byte")
	}
	if c.Timeout < 0 {
		return bad("the wall limit %v is negative", c.Timeout)
	}
	if c.Grace < NoGrace {
		return bad("the grace %v is negative", c.Grace)
	}
	if err := c.Rlimits.check(); err != nil {
		return bad("%w", err)
	}
	if c.StdoutCap < KeepNone || c.StderrCap < KeepNone {
		return bad("an output cap is negative")
	}
	if c.Stdin != nil && c.StdinPipe {
		return bad("Stdin and StdinPipe exclude each other")
	}
	if c.Detach && (c.Stdout != nil || c.Stderr != nil) {
		return bad("a detached command has no writers: use Follow")
	}
	if !c.TTY && (c.Rows != 0 || c.Cols != 0) {
		return bad("a terminal size without a TTY")
	}
	return nil
}

// checkEnv says what is wrong with one environment variable. It never quotes the value.
func checkEnv(name, value string) error {
	switch {
	case name == "":
		return fmt.Errorf("an environment variable has no name")
	case strings.ContainsAny(name, "=\x00"):
		return fmt.Errorf("environment name %q contains '=' or a NUL byte", name)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("the value of environment variable %s contains a NUL byte", name)
	}
	return nil
}
