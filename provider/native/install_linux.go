//go:build amd64 || arm64

package native

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/native/setup"
	"github.com/fumehood/fumehood/internal/owner"
)

// install writes the guest's program into a folder of its own, unless it is there. It returns its path.
func install(ctx context.Context, dir string, log *slog.Logger) (string, error) {
	const op = "install the guest"
	b, err := guestbin.For(ctx, runtime.GOARCH, log)
	if err != nil {
		return "", err
	}
	file, readable := filepath.Join(dir, b.SHA256, setup.Guest), filepath.Join(dir, b.SHA256, readableGuest)
	if err = os.MkdirAll(dir, 0o700); err == nil {
		err = private(dir) // the program begins with all rights
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(filepath.Dir(file), path.Base(setup.SocketDir)), 0o711)
	}
	if err == nil { // the umask may have changed it, and users of sandboxes enter it
		err = os.Chmod(filepath.Dir(file), 0o711) //nolint:gosec // the folder above is private
	}
	if err == nil {
		if _, serr := os.Stat(file); serr == nil {
			return file, nil
		}
	}
	var program []byte
	if err == nil {
		program, err = b.Program()
	}
	if err == nil {
		err = writeProgram(readable, program, 0o755)
	}
	if err == nil {
		err = writeProgram(file, program, 0o111) // its processes cannot be traced
	}
	if err != nil {
		return "", &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: err}
	}
	return file, nil
}

func private(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return owner.Private(dir, info)
}

// readableGuest is the name of a copy of the guest that every user may read, which gVisor requires.
const readableGuest = setup.Guest + "-readable"

// writeProgram writes a program.
func writeProgram(file string, program []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o711); err != nil {
		return err
	}
	return files.WriteProgram(file, program, mode)
}
