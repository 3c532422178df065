package probe

import (
	"fmt"
	"os"
	"os/exec"
)

// Host returns the System of this process.
func Host() System { return host{} }

type host struct{}

func (host) Dir() (string, error) {
	// Without PWD, os.Getwd asks the system instead of trusting the environment.
	if err := os.Unsetenv("PWD"); err != nil {
		return "", err
	}
	return os.Getwd()
}

func (host) ID() (uid, gid int) { return os.Getuid(), os.Getgid() }

func (host) Append(path string, p []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(p); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (host) Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (host) Spawn(args []string, how Spawn) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, args...)
	if how.Output {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	if how.Detach {
		detach(cmd)
	}
	if how.Wait {
		return cmd.Run()
	}
	return cmd.Start()
}

func (host) Sparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (host) Link(target, path string) error { return os.Symlink(target, path) }

func (host) Lock(path string) error { return os.Chmod(path, 0) }

// errNoSuchThing returns the error for something that this operating system does not support.
func errNoSuchThing(name string) error { return fmt.Errorf("%s: not supported on this system", name) }
