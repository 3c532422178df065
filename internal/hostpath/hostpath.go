// Package hostpath checks paths of this machine: which of them a file may name, and which no sandbox may see. It
// resolves symbolic links before the check.
package hostpath

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks limits the symbolic links followed for one path, as the kernel does.
const maxLinks = 255

// Real returns an absolute path with its symbolic links resolved. Elements that do not exist or cannot be read stay
// as they are. So do links below /proc: they lead elsewhere for another process, such as the daemon.
func Real(path string) string {
	done, rest := split(path)
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = filepath.Dir(done)
			continue
		}
		at := filepath.Join(done, part)
		if links == maxLinks || within("/proc", done) {
			done = at
			continue
		}
		target, err := os.Readlink(at)
		if err != nil {
			done = at
			continue
		}
		links++
		var parts []string
		if filepath.IsAbs(target) {
			done, parts = split(target)
		} else {
			parts = strings.Split(filepath.ToSlash(target), "/")
		}
		rest = slices.Concat(parts, rest)
	}
	return done
}

// split returns the root of an absolute path, and its other elements.
func split(path string) (root string, parts []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), strings.Split(filepath.ToSlash(path[len(volume):]), "/")
}

// resolve is Real for a path that may be relative to this process's directory.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return Real(abs), nil
}

// Contains reports whether a path is dir or is in it, with symbolic links resolved.
func Contains(dir, path string) bool {
	dir, err1 := filepath.Abs(dir)
	path, err2 := filepath.Abs(path)
	return err1 == nil && err2 == nil && within(Real(dir), Real(path))
}

// within reports whether a path is dir or is below it, without access to the file system.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
