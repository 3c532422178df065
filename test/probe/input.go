package probe

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
)

var inputCommands = map[string]command{
	"cat": {": copy standard input to standard output, as it comes", 0, func(_ context.Context, env Env, _ []string) error {
		buf := make([]byte, 64<<10)
		_, err := io.CopyBuffer(writerOnly{env.Stdout}, readerOnly{env.Stdin}, buf)
		return err
	}},
	"sum": {": print the number of bytes on standard input, and their SHA-256", 0, func(_ context.Context, env Env, _ []string) error {
		h := sha256.New()
		n, err := io.Copy(h, env.Stdin)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "%d %x", n, h.Sum(nil))
		return err
	}},
	"args": {"[ARG...]: print the number of arguments, and the SHA-256 of them, each followed by a NUL", 0, func(_ context.Context, env Env, args []string) error {
		_, err := io.WriteString(env.Stdout, SumArgs(args))
		return err
	}},
}

// The wrappers keep io.Copy from using splice and similar calls, which behave differently from read and write.
type (
	readerOnly struct{ io.Reader }
	writerOnly struct{ io.Writer }
)

// Sum returns what the subcommand sum prints for data.
func Sum(data []byte) string {
	return fmt.Sprintf("%d %x", len(data), sha256.Sum256(data))
}

// SumArgs returns what the subcommand args prints for args.
func SumArgs(args []string) string {
	h := sha256.New()
	for _, a := range args {
		_, _ = io.WriteString(h, a+"\x00") // a hash's Write never fails
	}
	return fmt.Sprintf("%d %x", len(args), h.Sum(nil))
}
