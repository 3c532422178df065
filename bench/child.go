package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// child is a process that writes lines of JSON and ends when its standard input closes. It is not used concurrently.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	log  bytes.Buffer // standard error; complete after wait
	wait func() error
}

// startChild starts a program with more environment variables. The child outlives the cancellation of ctx.
func startChild(ctx context.Context, env []string, program string, args ...string) (*child, error) {
	c := &child{cmd: exec.CommandContext(context.WithoutCancel(ctx), program, args...)}
	detach(c.cmd)
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = &c.log
	c.wait = sync.OnceValue(c.cmd.Wait)
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out = in, json.NewDecoder(out)
	return c, c.cmd.Start()
}

// ask writes a line, unless the question is nil, and decodes the next line of the child. After an error the child has
// ended.
func (c *child) ask(ctx context.Context, question, answer any) error {
	defer context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })()
	var err error
	if question != nil {
		err = json.NewEncoder(c.in).Encode(question)
	}
	if err == nil {
		err = c.out.Decode(answer)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(fmt.Errorf("%s: %w", filepath.Base(c.cmd.Path), err), c.close(ctx))
}

// close closes the child's standard input and waits until it has ended.
func (c *child) close(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })()
	_ = c.in.Close() // may be closed
	if err := c.wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(c.cmd.Path), err, bytes.TrimSpace(c.log.Bytes()))
	}
	return nil
}

// resident returns the child's resident memory in bytes. Without /proc it returns errNotMeasured.
func (c *child) resident() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0, errNotMeasured
	}
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "\nVmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errNotMeasured
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10, err
}
