package setup

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the limit of links followed for one path, the same as in Linux (MAXSYMLINKS).
const maxLinks = 40

// makeFolder makes a folder and those above it, where they are missing. It follows links, as the Engine does also those
// that lead to nothing. They stay in this process's root directory.
func makeFolder(at string) error {
	real, err := followLinks(at)
	if err != nil {
		return err
	}
	return os.MkdirAll(real, 0o755) //nolint:gosec // as the Engine does
}

// followLinks returns an absolute path with all links followed. It need not exist.
func followLinks(at string) (string, error) {
	real, rest := "/", strings.Split(at, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." || name == ".." {
			real = path.Join(real, name) // never above /
			continue
		}
		next := path.Join(real, name)
		target, err := os.Readlink(next)
		if err != nil { // not a link, or nothing
			real = next
			continue
		}
		if links++; links > maxLinks {
			return "", &os.PathError{Op: "open", Path: at, Err: unix.ELOOP}
		}
		if path.IsAbs(target) {
			real = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return real, nil
}
