// Package spec reads what users write: sizes with units, and environment specs. From these it computes the
// mounts, ports, variables and users of a session's containers. It starts nothing. Only Load, Discover and the
// functions that check paths access the file system.
package spec

import (
	"strings"

	"github.com/docker/go-units"

	"github.com/fumehood/fumehood/internal/strict"
)

// ParseSize parses a size in bytes: a number with an optional unit. Units are powers of 1024, as in Docker's own
// options ("512m", "2g", "2GiB", "0.5gb"). "none" is fumehood.NoLimit.
func ParseSize(s string) (int64, error) { return strict.ParseSize(s) }

// FormatSize formats a size for people, in units of 1024: "2GiB".
func FormatSize(n int64) string {
	return strings.ReplaceAll(units.BytesSize(float64(n)), " ", "")
}
