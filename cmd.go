package fumehood

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// DefaultOutputCap is how many bytes of each output stream a Result keeps by default.
	DefaultOutputCap = 10 << 20
	// KeepNone as an output cap keeps no bytes of a stream. Output.Total still counts them.
	KeepNone = -1
	// DefaultGrace is the default time between SIGTERM and SIGKILL when a command is stopped.
	DefaultGrace = time.Second
	// NoGrace as a grace period sends SIGKILL at once.
	NoGrace time.Duration = -1
	// MaxReadFile is the default size limit of ReadFile and the maximum length of ReadRange, in bytes.
	MaxReadFile = 100 << 20
)

// Cmd is a command to run in a service. Only Args is required.
type Cmd struct {
	// Args is the program and its arguments, passed byte for byte without a shell. A program without a slash is
	// looked up in the PATH of the command's environment. An empty PATH, or an empty element of it, means the
	// command's directory, as in POSIX.
	Args []string
	// Dir is the working directory. A relative path is resolved against the service's directory. Empty means the
	// service's directory. As in Docker, a user starts in that even without the right to enter it; any other directory
	// needs that right.
	Dir string
	// Env is added to the service's environment and takes precedence over it. Values are passed byte for byte.
	Env map[string]string
	// User is "name", "uid", "name:group" or "uid:gid", resolved in the service. A number is an id, never a name, and at
	// most 2147483647. Empty means the service's user, or the user given to Service.As.
	User string

	// Stdin is read to its end and passed to the command. Nil means an empty standard input. If the command ends
	// while a Read blocks, that Read is abandoned and its data is lost.
	Stdin io.Reader
	// StdinPipe leaves standard input open for Process.Write and Process.CloseStdin. It is for Start only and
	// cannot be combined with Stdin.
	StdinPipe bool

	// Stdout and Stderr receive the output as it arrives, from one goroutine at a time. A blocked Write blocks the
	// command and delays its end. A failed Write kills the command and returns an ErrConfig. The Result also keeps
	// the output, unless the cap is KeepNone. Nil writes nothing. Detached commands cannot have writers.
	Stdout, Stderr io.Writer

	// Detach keeps the command running after the context of Start ends. It runs until it exits, is killed, reaches
	// its Timeout, or the sandbox is closed. Service.Processes lists it until Process.Forget. Its output is
	// available from Process.Follow, not from Process.Events. Detach is for Start only.
	//
	// If the sandbox is kept and its provider is an Opener, the command also outlives Close and this process: see
	// Service.RefreshProcesses. There, Detach with ViaEngine is an ErrUnsupported.
	Detach bool

	// Events announces a loop over Process.Events: from its start on, the program blocks until the loop takes its
	// output, rather than output being lost. Without Events, and without a loop, output never blocks the program. It
	// is for Start only, and not for detached commands.
	Events bool

	// Timeout limits the time from start to end, on the host's clock. When it expires, the command is killed and
	// its outcome is TimedOut. 0 means no limit. Time in which the program blocks because a writer, or a loop over
	// its events, is slow counts, as with a pipe.
	Timeout time.Duration
	// CPUTime limits the processor time of the command and all its descendants together, also of orphans, killed children
	// and children that nobody waits for, until the command's own process has ended and, with KillRest, the rest too. A
	// command that uses more is killed, and its outcome is CPUTimeExceeded, also if it ended before that was noticed. If
	// Timeout expires too, the limit that was reached first counts. 0 means no limit. Where the sandbox has no control group
	// that counts processor time, a command with a limit is an ErrUnsupported. docs/design/outcomes.md has the precision.
	CPUTime time.Duration
	// StdoutCap and StderrCap limit the bytes that the Result keeps of each stream. The end of the stream is kept,
	// and Output.Total counts all bytes. 0 means DefaultOutputCap, KeepNone keeps nothing.
	StdoutCap, StderrCap int64

	// Grace is the time between SIGTERM and SIGKILL when the command is stopped. 0 means DefaultGrace, NoGrace
	// sends SIGKILL at once.
	Grace time.Duration

	// KillRest kills the processes that the program leaves behind, before the Result is returned. Otherwise they
	// run until the sandbox is closed. If the provider cannot kill them, the Result has Leaked set.
	KillRest bool

	// Rlimits limit each process of the command, see CPUTime for all together. The zero value sets no limit.
	Rlimits Rlimits

	// ViaEngine runs the command without the help of any process in the sandbox, if the provider supports that:
	// under docker, with the Engine's own exec. It is slower and has restrictions (docs/promises.md). Use it for
	// commands that must not trust processes that the code under test may have modified.
	ViaEngine bool

	// TTY gives the command a terminal. Both streams then arrive as standard output.
	TTY bool
	// Rows and Cols are the terminal's initial size in characters. 0 means 24 by 80. They require TTY.
	Rows, Cols uint16
	// Term is the type of the terminal, for the variable TERM. Empty means xterm. Env and the service's own TERM take
	// precedence. It requires TTY.
	Term string
}

// Validate checks everything that can be checked without a sandbox. Its errors are ErrConfig.
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
	if strings.ContainsRune(c.Dir+c.User+c.Term, 0) {
		return bad("the working directory, the user or the terminal type contains a NUL byte")
	}
	if c.Timeout < 0 {
		return bad("the timeout %v is negative", c.Timeout)
	}
	if c.CPUTime < 0 {
		return bad("the limit of processor time %v is negative", c.CPUTime)
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
	if c.Detach && c.Events {
		return bad("a detached command has no events: use Follow")
	}
	if !c.TTY && (c.Rows != 0 || c.Cols != 0 || c.Term != "") {
		return bad("a terminal's size or type without a TTY")
	}
	return nil
}

// checkEnv checks one environment variable. Its error never quotes the value.
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

// checkEnvText also rejects what is not valid UTF-8, which cannot be a sandbox's variable. A command's may have any bytes.
func checkEnvText(name, value string) error {
	if !utf8.ValidString(name) {
		return fmt.Errorf("environment name %q is not valid UTF-8", name)
	}
	if !utf8.ValidString(value) {
		return fmt.Errorf("the value of environment variable %s is not valid UTF-8: set it for a command instead", name)
	}
	return checkEnv(name, value)
}
