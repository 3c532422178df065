package host

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/wire"
)

// A mount point that cannot be removed is busy, which no configuration is to blame for.
func TestFileFailure_busy(t *testing.T) {
	for _, errno := range []int{ebusy, etxtbsy} {
		err := fileFailure(&wire.FileError{Errno: errno, Text: "device or resource busy"})
		if !errors.Is(err, fumehood.ErrPermission) || !errors.Is(err, fs.ErrPermission) || errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("errno %d: got %v of class %v", errno, err, fumehood.ClassOf(err))
		}
	}
}
