package guest

import (
	"io"
	"os"

	"github.com/fumehood/fumehood/internal/setup"
)

// setUp builds a sandbox around this process, or joins one, and serves in it.
func setUp(stdin, stdout, stderr *os.File) int {
	if err := setup.Run(stdin); err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: set up the sandbox: "+err.Error()+"\n")
		return 1
	}
	contained.Store(true)
	return serve(setup.GuestDir+"/"+setup.Guest, stdin, stdout, stderr)
}

// enter starts another guest in a sandbox, and returns its exit code.
func enter(mode string, stderr *os.File) int {
	join := setup.Enter
	if mode == "enter-user" {
		join = setup.EnterUser
	}
	code, err := join()
	if err != nil {
		_, _ = io.WriteString(stderr, "fumehood-guest: enter the sandbox: "+err.Error()+"\n")
		return 1
	}
	return code
}
