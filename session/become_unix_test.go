//go:build unix

package session_test

import (
	"os/exec"
	"syscall"
)

// become makes a program run as another user.
func become(cmd *exec.Cmd, uid uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}
