package guestbin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/wire/host"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/test/tier"
)

// emulator is a program of Debian's package qemu-user-static.
const emulator = "qemu-aarch64-static"

// launch is the variable that turns this test program into the launcher of the guest: "LAUNCH=emulator:program".
const launch = "FUMEHOOD_TEST_LAUNCH"

// TestMain runs the tests, or acts as the launcher. The guest starts its workers by its own program name. That is a
// script that runs the launcher again, so the kernel need not know how to run programs of another architecture.
func TestMain(m *testing.M) {
	emulator, program, launcher := strings.Cut(os.Getenv(launch), ":")
	if !launcher {
		os.Exit(m.Run())
	}
	// The emulator does not support this call of the guest, see withoutSubreaper.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		log.Fatal(err)
	}
	args := append([]string{emulator, "-0", os.Args[1], program}, os.Args[2:]...)
	log.Fatal(unix.Exec(emulator, args, os.Environ()))
}

// withoutSubreaper returns the program without the system call prctl(PR_SET_CHILD_SUBREAPER, 1), which the emulator
// does not support. The call becomes prctl(PR_SET_NO_NEW_PRIVS, 1). The launcher has already made the original call,
// and the attribute is kept across exec.
func withoutSubreaper(t *testing.T, program []byte) []byte {
	t.Helper()
	// mov x0, #36; mov x1, #1; mov x2, xzr
	call := []byte{0x80, 0x04, 0x80, 0xd2, 0xe1, 0x03, 0x40, 0xb2, 0xe2, 0x03, 0x1f, 0xaa}
	if n := bytes.Count(program, call); n != 3 { // in the guest, in the worker, and for an OCI runtime
		t.Fatalf("prctl(PR_SET_CHILD_SUBREAPER, 1) was found %d times, not 3: has the compiler changed?", n)
	}
	neutral := bytes.Clone(call)
	neutral[0] = 0xc0 // mov x0, #38
	return bytes.ReplaceAll(program, call, neutral)
}

// pipes holds a process's standard output and input.
type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// serving starts a guest from the program at the end of a command line.
func serving(t testing.TB, program []string, options ...string) (*exec.Cmd, pipes) {
	t.Helper()
	args := slices.Concat(program[1:], []string{"serve"}, options)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program[0], args...)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, pipes{stdout, stdin}
}

// emulated starts the guest for arm64 in an emulator, and connects to it.
func emulated(t *testing.T) *host.Guest {
	t.Helper()
	path := tier.Program(t, tier.CI, emulator)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, script := filepath.Join(dir, "program"), filepath.Join(dir, "guest")
	for name, content := range map[string][]byte{
		program: withoutSubreaper(t, unpacked(t, "arm64")),
		script:  fmt.Appendf(nil, "#!/bin/sh\n%s='%s:%s' exec '%s' \"$0\" \"$@\"\n", launch, path, program, self),
	} {
		if err := files.WriteProgram(name, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd, conn := serving(t, []string{script})
	guest := host.New(conn)
	t.Cleanup(func() {
		guest.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the guest ended: %v", err)
		}
	})
	return guest
}

func TestGuest_arm64(t *testing.T) {
	guest := emulated(t)
	ctx := t.Context()
	if err := guest.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	run := func(cmd fumehood.Cmd) (provider.Exit, string) {
		t.Helper()
		var out bytes.Buffer
		p, err := guest.Exec(ctx, cmd, false, func(_ fumehood.Stream, b []byte) { out.Write(b) })
		if err != nil {
			t.Fatal(err)
		}
		exit, err := p.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return exit, out.String()
	}
	for range 3 { // by a new worker, then twice by the same one
		exit, out := run(fumehood.Cmd{Args: []string{"sh", "-c", "echo $GREETING; exit 3"}, Env: map[string]string{"GREETING": "hello"}})
		if exit.Outcome != fumehood.Exited || exit.Code != 3 || out != "hello\n" {
			t.Errorf("got %+v, %q", exit, out)
		}
	}
	if exit, _ := run(fumehood.Cmd{Args: []string{"sh", "-c", "kill -TERM $$"}}); exit.Outcome != fumehood.Signaled || exit.Signal != 15 {
		t.Errorf("got %+v", exit)
	}
	if p, err := guest.Exec(ctx, fumehood.Cmd{Args: []string{"/no/such/program"}}, false, nil); err != nil {
		t.Error(err)
	} else if _, err := p.Wait(ctx); !errors.Is(err, fumehood.ErrProgramNotFound) {
		t.Errorf("got %v", err)
	}

	begun := make(chan struct{})
	p, err := guest.Exec(ctx, fumehood.Cmd{Args: []string{"sh", "-c", "setsid sleep 1000 & echo begun; sleep 1000"}, Grace: fumehood.NoGrace}, true,
		func(fumehood.Stream, []byte) { close(begun) })
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	if !p.Kill(ctx) {
		t.Error("the command could not be killed")
	}
	if exit, err := p.Wait(ctx); err != nil || exit.Outcome != fumehood.Signaled || exit.Signal != 9 {
		t.Errorf("got %+v, %v", exit, err)
	}

	path, content := filepath.Join(t.TempDir(), "file"), strings.Repeat("0123456789", 100_000)
	if err := guest.Write(ctx, path, strings.NewReader(content), int64(len(content)), fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if info, err := guest.Stat(ctx, path); err != nil || info.Size != int64(len(content)) || time.Since(info.ModTime) > time.Hour {
		t.Errorf("got %+v, %v", info, err)
	}
	r, _, err := guest.Open(ctx, path, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != content {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := guest.Stat(ctx, "/no/such/file"); !errors.Is(err, fumehood.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
