package guestbin_test

import (
	"bytes"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/wire"
)

// The first command may send signals to its guest.
func TestGuest_signals(t *testing.T) {
	program := guestProgram(t)
	for range 20 {
		cmd, conn := serving(t, []string{program}, "--no-cgroup")
		greeting := make([]byte, 1)
		if _, err := conn.Read(greeting); err != nil {
			t.Errorf("no greeting: %v", err)
		}
		for s := unix.Signal(1); s <= 64; s++ {
			// Signals 32 to 34 are left to C libraries. The guest ignores them only as a first process.
			if s != unix.SIGKILL && s != unix.SIGSTOP && (s < 32 || s > 34) {
				_ = cmd.Process.Signal(s)
			}
		}
		conn.ReadCloser = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(greeting), conn.ReadCloser), conn.ReadCloser}
		host := wire.NewConn(conn, wire.Host, nil)
		go func() { _ = host.Serve() }()
		if !host.Ping(t.Context().Done()) {
			t.Error("the guest has ended")
		}
		host.Close()
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != wire.WasStopped { // one of the signals was SIGCONT
			t.Errorf("the guest ended with %v", cmd.ProcessState)
		}
	}
}

// A guest that was stopped when its connection ended must report it, even if it ends right after SIGCONT.
func TestGuest_wasStopped(t *testing.T) {
	program := guestProgram(t)
	for range 100 {
		cmd, conn := serving(t, []string{program}, "--no-cgroup")
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Signal(unix.SIGSTOP)
		var status unix.WaitStatus
		if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("the guest has not stopped: %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Signal(unix.SIGCONT)
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != wire.WasStopped {
			t.Fatalf("the guest ended with %v", cmd.ProcessState)
		}
	}
}

// guestProgram returns the path of a guest for this machine.
func guestProgram(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "guest")
	if err := files.WriteProgram(program, unpacked(t, runtime.GOARCH), 0o700); err != nil {
		t.Fatal(err)
	}
	return program
}

// unpacked returns the guest for an architecture.
func unpacked(t testing.TB, arch string) []byte {
	t.Helper()
	binary, err := guestbin.For(t.Context(), arch, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	program, err := binary.Program()
	if err != nil {
		t.Fatal(err)
	}
	return program
}
