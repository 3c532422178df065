// Package hostpath checks paths of this machine: which of them a file may name, and which no sandbox may see. It
// resolves symbolic links before the check.
package hostpath

import (
	"errors"
	"io/fs"
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
	real, _ := follow(path) // what cannot be read stays as it is
	return real
}

// follow is Real. It returns an fs.ErrPermission too if it may not look at an element, which could be a link.
func follow(path string) (done string, denied error) {
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
			if errors.Is(err, fs.ErrPermission) {
				denied = err
			}
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
	return done, denied
}

// split returns the root of an absolute path, and its other elements.
func split(path string) (root string, parts []string) {
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), strings.Split(filepath.ToSlash(path[len(volume):]), "/")
}

// ends returns what a path leads to with symbolic links resolved. For the kernel, a ".." after a link is the parent of
// the link's target; for programs that clean paths first, such as the Engine, it is the link's own folder. The path may
// be relative to this process's directory.
func ends(path string) ([]string, error) {
	cleaned, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	whole := path
	if !filepath.IsAbs(path) {
		dir, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		whole = dir + string(filepath.Separator) + path
	}
	first, err1 := follow(cleaned)
	second, err2 := follow(whole)
	return []string{first, second}, errors.Join(err1, err2)
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
