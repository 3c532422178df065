package guest

import (
	"io"
	"os"

	"github.com/fumehood/fumehood/internal/native/setup"
)

// setUp builds a sandbox around this process, or joins one, and serves in it. Program is the guest's path there.
func setUp(program string, stdin, stdout, stderr *os.File) int {
	tasks, err := setup.Run(stdin)
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: set up the sandbox: "+err.Error()+"\n")
		return 1
	}
	contained.Store(true)
	return serve(program, tasks, stdin, stdout, stderr)
}

// enter starts another guest in a sandbox, and returns its exit code.
func enter(mode string, stderr *os.File) int {
	join := map[string]func() (int, error){"enter": setup.Enter, "enter-user": setup.EnterUser, "share": setup.Share}
	code, err := join[mode]()
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: enter the sandbox: "+err.Error()+"\n")
		return 1
	}
	return code
}

// supervise lets an OCI runtime start a guest, and returns the guest's exit code.
func supervise(stdin, stderr *os.File) int {
	code, err := setup.Supervise(stdin)
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: start by a runtime: "+err.Error()+"\n")
		return 1
	}
	return code
}

// own changes the owners of files for the host, in a user namespace.
func own(stdin, stderr *os.File) int {
	if err := setup.Own(stdin); err != nil {
		_, _ = io.WriteString(stderr, err.Error()+"\n")
		return 1
	}
	return 0
}
