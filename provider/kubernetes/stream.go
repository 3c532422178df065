package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/guest/ring"
	"github.com/fumehood/fumehood/provider"
)

// stream is a connection to a program in a container: one that an exec has started, or the main process.
type stream struct {
	io.Reader
	stdin  *io.PipeWriter
	stdout *io.PipeReader
	stderr *ring.Tail
	stop   context.CancelFunc
	first  chan struct{} // closed when it has written something, or has ended
	ended  chan struct{} // closed when it has ended, or the connection
	err    error         // of the connection, or a CodeExitError; set before ended is closed
}

var _ box.Exec = (*stream)(nil)

const (
	// complaint is how many bytes of a standard error are kept.
	complaint = 4 << 10
	// endWithin bounds the wait for the end of a program whose standard input is closed.
	endWithin = 2 * time.Second
)

// open starts a stream to a container: an exec of a command, or without a command the main process's. ctx limits the start
// only.
func (a *api) open(ctx context.Context, pod, container string, command []string) (*stream, error) {
	request, kind := a.rest.Get().Namespace(a.namespace).Resource("pods").Name(pod), "attach"
	if command != nil {
		kind = "exec"
		request = request.SubResource(kind).VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: true, Stdout: true, Stderr: true}, a.params)
	} else {
		request = request.SubResource(kind).VersionedParams(&corev1.PodAttachOptions{Container: container, Stdin: true, Stdout: true, Stderr: true}, a.params)
	}
	executor, err := remotecommand.NewWebSocketExecutor(a.config, "GET", request.URL().String())
	if err != nil {
		return nil, err
	}
	// Otherwise the library logs that the connection has ended, which the error says anyway.
	lives, stop := context.WithCancel(silent(context.WithoutCancel(ctx)))
	s := &stream{stderr: ring.NewTail(complaint), stop: stop, first: make(chan struct{}), ended: make(chan struct{})}
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	s.stdin, s.stdout, s.Reader = stdin, stdout, stdout
	watched := &firstWrite{Writer: out, done: sync.OnceFunc(func() { close(s.first) })}
	go func() {
		defer watched.done()
		defer close(s.ended)
		s.err = executor.StreamWithContext(lives, remotecommand.StreamOptions{Stdin: in, Stdout: watched, Stderr: s.stderr})
		_ = errors.Join(in.Close(), out.Close()) // never an error
		stop()
	}()
	return s, nil
}

// firstWrite calls done at the first write. What nobody reads any more is dropped.
type firstWrite struct {
	io.Writer
	done func()
}

func (w *firstWrite) Write(p []byte) (int, error) {
	w.done()
	if _, err := w.Writer.Write(p); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return 0, err
	}
	return len(p), nil
}

// Write writes to the program's standard input.
func (s *stream) Write(p []byte) (int, error) { return s.stdin.Write(bytes.Clone(p)) }

// Close closes the program's standard input, and the connection when the program has ended, or soon.
func (s *stream) Close() error {
	_ = errors.Join(s.stdin.Close(), s.stdout.Close()) // never an error
	go func() {
		select {
		case <-s.ended:
		case <-time.After(endWithin):
		}
		s.stop()
	}()
	return nil
}

// Complaint returns the end of what the program wrote to standard error, when it has ended.
func (s *stream) Complaint() string {
	select {
	case <-s.ended:
	case <-time.After(endWithin):
	}
	text, _ := s.stderr.Bytes()
	return string(text)
}

// exit returns the program's exit code. It returns an error if the connection has ended instead.
func (s *stream) exit() (int, error) {
	if code, ok := errors.AsType[exec.CodeExitError](s.err); ok {
		return code.Code, nil
	}
	if s.err != nil {
		return -1, &fumehood.Error{Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("the stream through the API server: %w", s.err)}
	}
	return 0, nil
}

// Wait waits for the program's exit.
func (s *stream) Wait(ctx context.Context) (provider.Exit, error) {
	select {
	case <-s.ended:
	case <-ctx.Done():
		return provider.Exit{}, ctx.Err()
	}
	code, err := s.exit()
	return provider.Exit{Outcome: fumehood.Exited, Code: code}, err
}

// AwaitEnd waits at most within for the program's exit, and returns the exit code: -1 if it still runs.
func (s *stream) AwaitEnd(ctx context.Context, within time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	exit, err := s.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		return -1, nil //nolint:nilerr // it runs
	}
	return exit.Code, err
}

// Stopped returns false: the cluster does not tell whether a program is stopped.
func (s *stream) Stopped(context.Context) (bool, error) { return false, nil }
