package local

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// killGroup kills only the program, since Windows has no process groups to kill.
func killGroup(p *os.Process) { _ = p.Kill() }

func signalGroup(p *os.Process, linux int) error {
	if linux == 9 {
		return p.Kill()
	}
	return classError(fumehood.ErrUnsupported, "there are no signals on Windows")
}

func exitOf(state *os.ProcessState) provider.Exit {
	return provider.Exit{Outcome: fumehood.Exited, Code: state.ExitCode()}
}

// runnable returns an error if a file cannot be executed.
func runnable(file string) error {
	_, err := exec.LookPath(file)
	return err
}

func unenterable(string) bool { return false }

// cutOff does nothing, since a read of a pipe cannot be interrupted on Windows. The readers end when no process has
// the output open.
func cutOff(*process) {}

func takeRest(*os.File, []byte, func([]byte)) {}
