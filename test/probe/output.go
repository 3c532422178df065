package probe

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
)

var outputCommands = map[string]command{
	"print": {"TEXT: print TEXT to standard output, byte for byte", 1, func(_ context.Context, env Env, args []string) error {
		_, err := io.WriteString(env.Stdout, args[0])
		return err
	}},
	"printerr": {"TEXT: print TEXT to standard error, byte for byte", 1, func(_ context.Context, env Env, args []string) error {
		_, err := io.WriteString(env.Stderr, args[0])
		return err
	}},
	"hex": {"DIGITS: print the bytes with these hexadecimal digits", 1, func(_ context.Context, env Env, args []string) error {
		b, err := hex.DecodeString(args[0])
		if err != nil {
			return usageError(err.Error())
		}
		_, err = env.Stdout.Write(b)
		return err
	}},
	"repeat": {"N TEXT: print TEXT N times", 2, runRepeat},
	"flood":  {"N: print N bytes of the pattern", 1, runFlood},
	"talk":   {"N: print N numbered lines to each output stream, in turn", 1, runTalk},
	"env": {"NAME: print the variable's value, byte for byte", 1, func(_ context.Context, env Env, args []string) error {
		for _, kv := range env.Environ {
			if v, ok := strings.CutPrefix(kv, args[0]+"="); ok {
				_, err := io.WriteString(env.Stdout, v)
				return err
			}
		}
		return fmt.Errorf("%s is not set", args[0])
	}},
	"pwd": {": print the working directory", 0, func(_ context.Context, env Env, _ []string) error {
		dir, err := env.System.Dir()
		if err != nil {
			return err
		}
		_, err = io.WriteString(env.Stdout, dir)
		return err
	}},
	"id": {": print UID:GID", 0, func(_ context.Context, env Env, _ []string) error {
		uid, gid := env.System.ID()
		_, err := fmt.Fprintf(env.Stdout, "%d:%d", uid, gid)
		return err
	}},
	"tty": {"[ROWS COLS]: print \"tty ROWS COLS\" or \"no tty\"; with arguments, first wait for that size", 0, runTTY},
}

func runRepeat(_ context.Context, env Env, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return usageError(err.Error())
	}
	for range n {
		if _, err := io.WriteString(env.Stdout, args[1]); err != nil {
			return err
		}
	}
	return nil
}

// patternLine is one line of the pattern. The line's number replaces its first digits.
const patternLine = "000000000000000 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRST\n"

// FillPattern fills p with the bytes that flood writes at offset off. They are numbered lines, so that missing,
// duplicate and misplaced bytes show.
func FillPattern(p []byte, off int64) {
	var line [len(patternLine)]byte
	for len(p) > 0 {
		copy(line[:], patternLine)
		for n, i := off/int64(len(line)), 14; n > 0; n, i = n/10, i-1 {
			line[i] = byte('0' + n%10)
		}
		n := copy(p, line[off%int64(len(line)):])
		p, off = p[n:], off+int64(n)
	}
}

// Pattern returns n bytes of the pattern, from offset off.
func Pattern(off, n int64) []byte {
	p := make([]byte, n)
	FillPattern(p, off)
	return p
}

func runFlood(ctx context.Context, env Env, args []string) error {
	n, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return usageError(err.Error())
	}
	buf := make([]byte, 64<<10)
	for off := int64(0); off < n; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := buf[:min(n-off, int64(len(buf)))]
		FillPattern(p, off)
		if _, err := env.Stdout.Write(p); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

func runTalk(_ context.Context, env Env, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return usageError(err.Error())
	}
	for i := range n {
		if _, err := fmt.Fprintf(env.Stdout, "out %d\n", i); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(env.Stderr, "err %d\n", i); err != nil {
			return err
		}
	}
	return nil
}

func runTTY(ctx context.Context, env Env, args []string) error {
	if len(args) == 2 {
		want := args[0] + " " + args[1]
		for {
			rows, cols, _ := env.System.Terminal()
			if fmt.Sprintf("%d %d", rows, cols) == want {
				break
			}
			if err := pause(ctx, Beat); err != nil {
				return err
			}
		}
	}
	rows, cols, ok := env.System.Terminal()
	if !ok {
		_, err := io.WriteString(env.Stdout, "no tty")
		return err
	}
	_, err := fmt.Fprintf(env.Stdout, "tty %d %d\n", rows, cols)
	return err
}
