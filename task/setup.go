package task

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
)

// maxScript is the largest set-up script in bytes.
const maxScript = 16 << 20

// setupCap is how much of each output of a set-up script is kept, in bytes.
const setupCap = 64 << 10

// SetupError is a set-up script that did not succeed.
type SetupError struct {
	Result *fumehood.Result // of its outputs the last 64 KiB each
	Limit  time.Duration    // that it had
}

// Error says how the script ended, and what it printed last.
func (e *SetupError) Error() string {
	var b strings.Builder
	b.WriteString("the set-up script ")
	b.WriteString(ended(e.Result, e.Limit))
	for _, out := range []struct {
		name string
		fumehood.Output
	}{{"standard output", e.Result.Stdout}, {"standard error", e.Result.Stderr}} {
		if text := strings.TrimRight(lastOf(out.Text()), "\n"); text != "" {
			b.WriteString("\nthe end of its " + out.name + ":\n    " + strings.ReplaceAll(text, "\n", "\n    "))
		}
	}
	return b.String()
}

// ended says how a program has ended, whose limit was this.
func ended(r *fumehood.Result, limit time.Duration) string {
	switch r.Outcome {
	case fumehood.Exited:
		return fmt.Sprintf("exited with code %d", r.ExitCode)
	case fumehood.Signaled:
		return fmt.Sprintf("was ended by signal %d", r.Signal)
	case fumehood.TimedOut:
		return fmt.Sprintf("did not end within the limit of %s", limit)
	case fumehood.OutOfMemory:
		return "was killed: out of memory"
	}
	return "is lost: " + cmp.Or(r.Reason, "how it ended is not known")
}

// lastOf is the end of a text, as much as a message bears.
func lastOf(text string) string {
	const most = 2 << 10
	if len(text) <= most {
		return text
	}
	return "..." + strings.ToValidUTF8(text[len(text)-most:], "")
}

// class is why the attempt cannot go on.
func (e *SetupError) class() error {
	switch e.Result.Outcome {
	case fumehood.TimedOut, fumehood.OutOfMemory:
		return fumehood.ErrLimit
	case fumehood.Exited, fumehood.Signaled:
		return fumehood.ErrConfig
	}
	return fumehood.ErrUnavailable
}

// setUp runs a script in the default service.
func setUp(ctx context.Context, sb fumehood.Sandbox, script Content, limit time.Duration) error {
	const op = "set up"
	text, err := read(script)
	if err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	path := "/tmp/fumehood-setup-" + strings.ToLower(rand.Text()[:12])
	if sb.ServiceInfo().Container == "" {
		path = "." + path[len("/tmp/"):] // a host process's /tmp is the host's
		path = strings.TrimRight(sb.ServiceInfo().Dir, "/") + "/" + path
	}
	if err := sb.WriteFile(ctx, path, []byte(text), fumehood.WriteOptions{}); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	res, err := sb.Exec(ctx, fumehood.Cmd{Args: append(interpreter(text), path), Timeout: limit, StdoutCap: setupCap, StderrCap: setupCap})
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if !res.Success() {
		e := &SetupError{Result: res, Limit: limit}
		return &fumehood.Error{Op: op, Service: sb.ServiceInfo().Name, Class: e.class(), Err: e}
	}
	err = sb.Remove(ctx, path, fumehood.RemoveOptions{})
	switch {
	case errors.Is(err, fumehood.ErrUnsupported): // this transport only takes and sends archives
		res, err = sb.Exec(ctx, fumehood.Cmd{Args: []string{"rm", "-f", path}, Timeout: limit})
		if err == nil && !res.Success() {
			err = fmt.Errorf("rm: %s", res.Stderr.Text())
		}
	case errors.Is(err, fumehood.ErrNotFound): // it has removed itself
		err = nil
	}
	if err != nil {
		return fmt.Errorf("remove the set-up script: %w", err)
	}
	return nil
}

func read(script Content) (string, error) {
	r, size, err := script.Open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	if size > maxScript {
		return "", fmt.Errorf("the script has %d bytes, more than %d", size, maxScript)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxScript))
	return string(text), err
}

// interpreter is the command that runs a script, as the kernel reads the script's first line: a program and at most
// one argument. It needs no right to execute what lies in /tmp.
func interpreter(script string) []string {
	line, _, _ := strings.Cut(script, "\n")
	line, ok := strings.CutPrefix(line, "#!")
	line = strings.TrimSpace(line)
	if !ok || line == "" {
		return []string{"sh"}
	}
	i := strings.IndexAny(line, " \t")
	if i < 0 {
		return []string{line}
	}
	return []string{line[:i], strings.TrimSpace(line[i:])}
}
