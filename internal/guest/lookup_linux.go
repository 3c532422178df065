package guest

import (
	"errors"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// enterable checks whether a process of this user can change to a directory. It returns the directory, or "" if the process
// has to stay in that of this worker: root has entered it for the guest, as the Engine does, but its user may not. A worker
// never changes its directory, since it could not go back.
func enterable(dir string) (string, error) {
	var in unix.Stat_t
	err := unix.Stat(dir+"/.", &in) // needs the right to search dir
	if errors.Is(err, unix.EACCES) && isCurrent(dir) {
		return "", nil
	}
	return dir, err
}

// isCurrent reports whether a path is that of this process's directory. No part of it need be accessible.
func isCurrent(dir string) bool {
	var current, there unix.Stat_t
	if unix.Stat(dir, &there) == nil { // "." would need the right to search
		return unix.Fstatat(unix.AT_FDCWD, "", &current, unix.AT_EMPTY_PATH) == nil && current.Dev == there.Dev && current.Ino == there.Ino
	}
	wd, err := syscall.Getwd()
	return err == nil && path.Clean(dir) == wd
}

// lookUp finds a program as shells in a directory do; "" is that of this process. A name with a slash is taken as it is. Any
// other name is searched in the PATH of env. A file in a directory without search permission counts as not found.
func lookUp(from, name string, env []string) (string, error) {
	in := func(file string) string {
		if from == "" || strings.HasPrefix(file, "/") {
			return file
		}
		return from + "/" + file
	}
	if strings.ContainsRune(name, '/') {
		_, err := runnable(in(name))
		return name, err
	}
	var found error = unix.ENOENT
	for dir := range strings.SplitSeq(pathOf(env), ":") {
		if dir == "" {
			dir = "."
		}
		there, err := runnable(in(dir + "/" + name))
		if err == nil {
			return dir + "/" + name, nil
		}
		if there {
			found = err
		}
	}
	return "", found
}

// pathOf returns the PATH of env, or the default of execvp if env has none.
func pathOf(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], "PATH="); ok {
			return v
		}
	}
	return "/bin:/usr/bin"
}

// runnable checks whether this process may execute the file at path. there reports whether the file could be
// examined.
func runnable(path string) (there bool, err error) {
	var info unix.Stat_t
	for err = unix.EINTR; errors.Is(err, unix.EINTR); { // os.Stat would take twice as long for each folder of the PATH
		err = unix.Stat(path, &info)
	}
	if err != nil {
		return false, err
	}
	if info.Mode&unix.S_IFMT == unix.S_IFDIR {
		return true, unix.EISDIR
	}
	return true, unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}
