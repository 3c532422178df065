package probe

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"
)

var processCommands = map[string]command{
	"exit": {"N: exit with code N", 1, func(_ context.Context, _ Env, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return usageError(err.Error())
		}
		return exit(n)
	}},
	"raise": {"N: send signal N to itself", 1, func(_ context.Context, env Env, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return usageError(err.Error())
		}
		return env.System.Raise(n)
	}},
	"ignore": {"N: ignore signal N from here on", 1, func(_ context.Context, env Env, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return usageError(err.Error())
		}
		env.System.Ignore(n)
		return nil
	}},
	"trap":  {"N TEXT: print \"ready\\n\", wait for signal N, print TEXT", 2, runTrap},
	"sleep": {"DURATION: wait, reading and writing nothing", 1, runSleep},
	"beat":  {"FILE: append a byte to FILE every 20 ms until FILE.stop exists or FILE cannot be written", 1, runBeat},
	"orphan": {"FILE: start a heartbeat and exit without waiting for it", 1, func(_ context.Context, env Env, args []string) error {
		return env.System.Spawn([]string{"beat", args[0]}, Spawn{Output: true})
	}},
	"tree":   {"FILE: start heartbeats as children of every kind, each in a file of TreeFiles", 1, runTree},
	"plain":  {"FILE: start the heartbeats of PlainFiles, in this program's own process group", 1, runPlain},
	"daemon": {"FILE [hold]: start a detached heartbeat; with hold, it keeps standard output open", 1, runDaemon},
	"wait":   {"FILE: wait until FILE exists", 1, runWait},
	"eat":    {"N: allocate N bytes of memory and keep them", 1, runEat},
}

func runTrap(ctx context.Context, env Env, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return usageError(err.Error())
	}
	came, err := env.System.Catch(n)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(env.Stdout, "ready\n"); err != nil {
		return err
	}
	select {
	case <-came:
		_, err := io.WriteString(env.Stdout, args[1])
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func runSleep(ctx context.Context, _ Env, args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return usageError(err.Error())
	}
	return pause(ctx, d)
}

func runBeat(ctx context.Context, env Env, args []string) error {
	file := args[0]
	for range beatFor / Beat {
		if err := env.System.Append(file, []byte{'.'}); err != nil {
			return err
		}
		if env.System.Exists(file + ".stop") {
			return nil
		}
		if err := pause(ctx, Beat); err != nil {
			return err
		}
	}
	return nil
}

// PlainFiles returns the files of plain's heartbeats: a child, a grandchild whose parent has exited, and a child that
// ignores SIGTERM.
func PlainFiles(file string) []string {
	return []string{file + ".child", file + ".orphan", file + ".deaf"}
}

// TreeFiles returns the files of tree's heartbeats: the files of plain, then a child and an orphan in sessions of their
// own.
func TreeFiles(file string) []string {
	return append(PlainFiles(file), file+".session", file+".daemon")
}

func runPlain(ctx context.Context, env Env, args []string) error {
	file := args[0]
	if err := spawnPlain(env, file); err != nil {
		return err
	}
	return waitFor(ctx, env, PlainFiles(file)...)
}

func spawnPlain(env Env, file string) error {
	for _, c := range []struct {
		args []string
		how  Spawn
	}{
		{[]string{"beat", file + ".child"}, Spawn{Output: true}},
		{[]string{"orphan", file + ".orphan"}, Spawn{Output: true, Wait: true}},
		{[]string{"ignore", "15", Then, "beat", file + ".deaf"}, Spawn{Output: true}},
	} {
		if err := env.System.Spawn(c.args, c.how); err != nil {
			return fmt.Errorf("spawn %v: %w", c.args, err)
		}
	}
	return nil
}

func runTree(ctx context.Context, env Env, args []string) error {
	file := args[0]
	if err := spawnPlain(env, file); err != nil {
		return err
	}
	if err := env.System.Spawn([]string{"beat", file + ".session"}, Spawn{Output: true, Detach: true}); err != nil {
		return err
	}
	if err := env.System.Spawn([]string{"orphan", file + ".daemon"}, Spawn{Output: true, Detach: true, Wait: true}); err != nil {
		return err
	}
	return waitFor(ctx, env, TreeFiles(file)...)
}

func runDaemon(ctx context.Context, env Env, args []string) error {
	hold := len(args) > 1 && args[1] == "hold"
	if err := env.System.Spawn([]string{"beat", args[0]}, Spawn{Output: hold, Detach: true}); err != nil {
		return err
	}
	return waitFor(ctx, env, args[0])
}

func runWait(ctx context.Context, env Env, args []string) error {
	return waitFor(ctx, env, args...)
}

func waitFor(ctx context.Context, env Env, files ...string) error {
	for _, f := range files {
		for !env.System.Exists(f) {
			if err := pause(ctx, Beat); err != nil {
				return fmt.Errorf("wait for %s: %w", f, err)
			}
		}
	}
	return nil
}

// eaten keeps the memory of eat reachable.
var eaten [][]byte

func runEat(_ context.Context, _ Env, args []string) error {
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return usageError(err.Error())
	}
	const page, piece = 4096, 1 << 20
	for ; n > 0; n -= piece {
		b := make([]byte, min(n, piece))
		for i := 0; i < len(b); i += page {
			b[i] = 1 // touch each page, so that it really takes memory
		}
		eaten = append(eaten, b)
	}
	return nil
}
