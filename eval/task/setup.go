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

// maxScript is the maximum size of a setup script in bytes.
const maxScript = 16 << 20

// setupCap is how many bytes of each output of a setup script are kept.
const setupCap = 64 << 10

// SetupError reports that a setup script failed.
type SetupError struct {
	Result *fumehood.Result // with the last 64 KiB of each output
	Limit  time.Duration    // its time limit
}

// Error returns how the script ended, and the end of its output.
func (e *SetupError) Error() string {
	var b strings.Builder
	b.WriteString("the setup script ")
	b.WriteString(describeEnd(e.Result, e.Limit))
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

// describeEnd describes how a program with that time limit ended.
func describeEnd(r *fumehood.Result, limit time.Duration) string {
	switch r.Outcome {
	case fumehood.Exited:
		return fmt.Sprintf("exited with code %d", r.ExitCode)
	case fumehood.Signaled:
		return fmt.Sprintf("was killed by signal %d", r.Signal)
	case fumehood.TimedOut:
		return fmt.Sprintf("did not end within the limit of %s", limit)
	case fumehood.CPUTimeExceeded:
		return "exceeded its limit of processor time"
	case fumehood.OutOfMemory:
		return "ran out of memory"
	case fumehood.Lost:
	}
	return "is lost: " + cmp.Or(r.Reason, "how it ended is not known")
}

// lastOf returns the end of a text, short enough for an error message.
func lastOf(text string) string {
	const most = 2 << 10
	if len(text) <= most {
		return text
	}
	return "..." + strings.ToValidUTF8(text[len(text)-most:], "")
}

// class returns the error class of the failure.
func (e *SetupError) class() error {
	switch e.Result.Outcome {
	case fumehood.TimedOut, fumehood.CPUTimeExceeded, fumehood.OutOfMemory:
		return fumehood.ErrLimit
	case fumehood.Exited, fumehood.Signaled:
		return fumehood.ErrConfig
	case fumehood.Lost:
	}
	return fumehood.ErrUnavailable
}

// setUp runs a script in the default service.
func setUp(ctx context.Context, sb fumehood.Sandbox, script Content, limit time.Duration) error {
	const op = "set up"
	text, err := readScript(script)
	if err != nil {
		return &fumehood.Error{Op: op, Class: fumehood.ErrConfig, Err: err}
	}
	path := "/tmp/fumehood-setup-" + strings.ToLower(rand.Text()[:12])
	if sb.ServiceInfo().Image == "" {
		path = "." + path[len("/tmp/"):] // the /tmp of a host process is shared with the host
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
	case errors.Is(err, fumehood.ErrUnsupported): // this transport supports only archives
		res, err = sb.Exec(ctx, fumehood.Cmd{Args: []string{"rm", "-f", path}, Timeout: limit})
		if err == nil && !res.Success() {
			err = fmt.Errorf("rm: %s", res.Stderr.Text())
		}
	case errors.Is(err, fumehood.ErrNotFound): // the script has removed itself
		err = nil
	}
	if err != nil {
		return fmt.Errorf("remove the setup script: %w", err)
	}
	return nil
}

func readScript(script Content) (string, error) {
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

// interpreter returns the command that runs a script. It parses the first line as the kernel does: a program and at
// most one argument. The script needs no execute permission in /tmp.
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
