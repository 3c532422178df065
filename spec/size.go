// Package spec reads what users write, sizes with units and environment specs, and decides what follows
// from it: which mounts, ports, variables and users a session's containers have. It starts nothing, and
// but for Load and CheckHosts it looks at nothing outside its arguments.
package spec

import (
	"strings"

	"github.com/docker/go-units"

	"github.com/fumehood/fumehood/internal/strict"
)

// ParseSize reads a size in bytes: a number with an optional unit, each unit a power of 1024 as in
// Docker's own options ("512m", "2g", "2GiB", "0.5gb"). "none" is fumehood.NoLimit.
func ParseSize(s string) (int64, error) { return strict.ParseSize(s) }

// FormatSize writes a size for people, in units of 1024: "2GiB".
func FormatSize(n int64) string {
	return strings.ReplaceAll(units.BytesSize(float64(n)), " ", "")
}
