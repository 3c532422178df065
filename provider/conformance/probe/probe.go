// Package probe is the program that the conformance suite runs in sandboxes, instead of a shell or any
// tool of an image. Its subcommands are functions over an [Env], so that an in-memory provider can run
// them in process; cmd/fumehood-probe is the same as one static program.
//
// Several subcommands run one after the other where their arguments are separated by [Then]; the first
// that fails ends the run:
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

// Then separates subcommands that are run one after the other.
const Then = "--then"

// Exit codes of the probe itself. A test that wants to see them from a program under test would pick
// others.
const (
	CodeFailed = 65 // the subcommand failed; standard error says why
	CodeUsage  = 64 // no such subcommand, or wrong arguments
)

// Beat is how often a heartbeat appends one byte to its file.
const Beat = 20 * time.Millisecond

// beatFor ends a heartbeat that everybody forgot.
const beatFor = 5 * time.Minute

// Env is what a subcommand sees of the world.
type Env struct {
	Args           []string // subcommand and arguments, without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string // NAME=value
	System         System
}

// System is what subcommands need of the operating system. Relative paths are below Dir.
type System interface {
	// Dir is the absolute working directory, as the system knows it.
	Dir() (string, error)
	// ID is the user and group that the program runs as; -1 where there is no such thing.
	ID() (uid, gid int)
	// Append appends p to a file, which it makes if need be.
	Append(path string, p []byte) error
	// Exists reports whether path names anything.
	Exists(path string) bool
	// Spawn starts the probe once more, with args.
	Spawn(args []string, how Spawn) error
	// Raise sends a signal to this very program. It returns only with an error, or for a signal that
	// does not end programs.
	Raise(sig int) error
	// Ignore makes the program deaf to a signal.
	Ignore(sig int)
	// Catch returns a channel that receives when the signal has come.
	Catch(sig int) (<-chan struct{}, error)
	// Terminal is the size of the terminal that is standard output; ok is false where it is none.
	Terminal() (rows, cols int, ok bool)
	// Sparse makes a file of size bytes that takes no room.
	Sparse(path string, size int64) error
	// Special makes a "fifo" or a "socket".
	Special(kind, path string) error
	// Link makes path a symbolic link to target.
	Link(target, path string) error
	// Lock makes path, which exists, unreadable and unwritable for all but root.
	Lock(path string) error
}

// Spawn says how a child is started.
type Spawn struct {
	Detach bool // in a session of its own
	Output bool // with the parent's standard output and error, instead of none
	Wait   bool // and wait for its end
}

// usageError is a wrong call of the probe.
type usageError string

func (e usageError) Error() string { return string(e) }

// exit ends the whole program with a code.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// command is one subcommand; args come without its name.
type command struct {
	usage string
	least int // arguments needed
	run   func(ctx context.Context, env Env, args []string) error
}

var commands = merged(outputCommands, inputCommands, processCommands, fileCommands, limitCommands)

func merged(groups ...map[string]command) map[string]command {
	all := map[string]command{}
	for _, g := range groups {
		maps.Copy(all, g)
	}
	return all
}

// Main runs the subcommands of env.Args and returns the exit code. It returns soon after the end of ctx.
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

// pause waits for d or the end of ctx.
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
