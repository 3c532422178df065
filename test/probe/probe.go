// Package probe implements the program that the conformance suite runs in sandboxes instead of a shell or an image's
// tools. Its subcommands are functions over an [Env], so that an in-memory provider can run them in process.
// cmd/fumehood-probe is the same as a static program.
//
// [Then] separates several subcommands. They run one after the other until one fails:
//
//	fumehood-probe print hello --then sleep 10m
package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Then separates subcommands, which run one after the other.
const Then = "--then"

// Exit codes of the probe itself. Tests of exit codes use other codes.
const (
	CodeFailed = 65 // the subcommand failed; standard error has the reason
	CodeUsage  = 64 // unknown subcommand or wrong arguments
)

// Beat is the interval at which a heartbeat appends one byte to its file.
const Beat = 20 * time.Millisecond

// beatFor is how long a heartbeat runs at most, so that one that is never stopped ends too.
const beatFor = 5 * time.Minute

// Env is the environment of a subcommand.
type Env struct {
	Args           []string // the subcommand and its arguments, without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string // NAME=value
	System         System
}

// System is what subcommands need from the operating system. Relative paths are below Dir.
type System interface {
	// Dir returns the absolute working directory, as the system reports it.
	Dir() (string, error)
	// ID returns the user and group that the program runs as, or -1 where the system has no such IDs.
	ID() (uid, gid int)
	// Append appends p to a file. It creates the file if necessary.
	Append(path string, p []byte) error
	// Exists reports whether path names a file of any kind.
	Exists(path string) bool
	// Spawn starts another probe with args.
	Spawn(args []string, how Spawn) error
	// Raise sends a signal to the program itself. It returns only on an error, or if the signal does not kill the
	// program.
	Raise(sig int) error
	// Ignore makes the program ignore a signal.
	Ignore(sig int)
	// Catch returns a channel that receives a value when the signal arrives.
	Catch(sig int) (<-chan struct{}, error)
	// Terminal returns the size of the terminal on standard output. ok reports whether standard output is a terminal.
	Terminal() (rows, cols int, ok bool)
	// Sparse creates a file of size bytes that takes no disk space.
	Sparse(path string, size int64) error
	// Special creates a file of a kind, "fifo", "socket" or "device".
	Special(kind, path string) error
	// Link creates path as a symbolic link to target.
	Link(target, path string) error
	// Lock makes the existing file path unreadable and unwritable for everyone but root.
	Lock(path string) error
}

// Spawn has the options of System.Spawn.
type Spawn struct {
	Detach bool // start the child in a session of its own
	Output bool // give the child the parent's standard output and error, instead of none
	Wait   bool // wait until the child ends
}

// usageError is the error of a wrong call of the probe.
type usageError string

func (e usageError) Error() string { return string(e) }

// exit is the error that ends the whole program with an exit code.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// command is one subcommand. The args of run do not include its name.
type command struct {
	usage string
	least int // minimum number of arguments
	run   func(ctx context.Context, env Env, args []string) error
}

var commands = mergeCommands(outputCommands, inputCommands, processCommands, fileCommands, limitCommands)

func mergeCommands(groups ...map[string]command) map[string]command {
	all := map[string]command{}
	for _, g := range groups {
		maps.Copy(all, g)
	}
	return all
}

// Main runs the subcommands in env.Args and returns the exit code. It returns soon after ctx ends.
func Main(ctx context.Context, env Env) int {
	for rest := env.Args; ; {
		args := rest
		i := slices.Index(rest, Then)
		if i >= 0 {
			args, rest = rest[:i], rest[i+1:]
		}
		if err := runOne(ctx, env, args); err != nil {
			return codeOf(env, err)
		}
		if i < 0 {
			return 0
		}
	}
}

func runOne(ctx context.Context, env Env, args []string) error {
	if len(args) == 0 {
		return usageError("usage: fumehood-probe SUBCOMMAND [ARG...] [" + Then + " SUBCOMMAND ...]\n" + usage())
	}
	c, ok := commands[args[0]]
	if !ok {
		return usageError("no subcommand " + args[0] + "\n" + usage())
	}
	if len(args)-1 < c.least {
		return usageError("usage: fumehood-probe " + args[0] + " " + c.usage)
	}
	return c.run(ctx, env, args[1:])
}

func codeOf(env Env, err error) int {
	var code exit
	if errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintln(env.Stderr, "fumehood-probe:", err)
	var usage usageError
	if errors.As(err, &usage) {
		return CodeUsage
	}
	return CodeFailed
}

func usage() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		fmt.Fprintf(&b, "  %s %s\n", name, commands[name].usage)
	}
	return b.String()
}

// pause waits for d. If ctx ends first, it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
