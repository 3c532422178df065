package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Limited is the capability of a System whose processes have resource limits.
type Limited interface {
	// Default restores the kernel's default action for a signal, which Go's runtime has replaced.
	Default(sig int) error
	// Hold opens a file n times and keeps it open. It returns how many opens succeeded.
	Hold(path string, n int) (int, error)
	// Rlimits returns the limits of this process, one per line: name, soft limit, hard limit.
	Rlimits() (string, error)
}

var limitCommands = map[string]command{
	"default": {"N: restore the kernel's default action for signal N", 1, func(_ context.Context, env Env, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return usageError(err.Error())
		}
		l, err := readLimits(env)
		if err != nil {
			return err
		}
		return l.Default(n)
	}},
	"burn": {"DURATION: use the processor for DURATION of wall-clock time", 1, runBurn},
	"fill": {"FILE N: append N bytes of the pattern to FILE", 2, runFill},
	"hold": {"FILE N: open FILE N times, and print how many opens succeeded", 2, runHold},
	"fork": {"N: start N children that live for a minute, and print how many started", 1, runFork},
	"limits": {": print the limits of this process: name, soft and hard limit", 0, func(_ context.Context, env Env, _ []string) error {
		l, err := readLimits(env)
		if err != nil {
			return err
		}
		text, err := l.Rlimits()
		if err != nil {
			return err
		}
		_, err = io.WriteString(env.Stdout, text)
		return err
	}},
}

func readLimits(env Env) (Limited, error) {
	if l, ok := env.System.(Limited); ok {
		return l, nil
	}
	return nil, errors.New("this system has no resource limits")
}

func runBurn(ctx context.Context, _ Env, args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return usageError(err.Error())
	}
	for begin := time.Now(); time.Since(begin) < d; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func runFill(_ context.Context, env Env, args []string) error {
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return usageError(err.Error())
	}
	const piece = 1000
	for off := int64(0); off < n; off += piece {
		if err := env.System.Append(args[0], Pattern(off, min(n-off, piece))); err != nil {
			return err
		}
	}
	return nil
}

func runHold(_ context.Context, env Env, args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return usageError(err.Error())
	}
	l, err := readLimits(env)
	if err != nil {
		return err
	}
	held, err := l.Hold(args[0], n)
	if _, werr := fmt.Fprint(env.Stdout, held); werr != nil {
		return werr
	}
	return err
}

func runFork(_ context.Context, env Env, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return usageError(err.Error())
	}
	for i := range n {
		if err = env.System.Spawn([]string{"sleep", "1m"}, Spawn{}); err != nil {
			n = i
			break
		}
	}
	if _, werr := fmt.Fprint(env.Stdout, n); werr != nil {
		return werr
	}
	return err
}
