// Package spec reads what users write, sizes with units and environment specs, and decides what follows
// from it: which mounts, ports, variables and users a session's containers have. It starts nothing, and
// but for Load and CheckHosts it looks at nothing outside its arguments.
package spec

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/docker/go-units"

	"github.com/lazaret/lazaret"
)

// sizeRE matches the text of a size.
var sizeRE = regexp.MustCompile(`^([0-9]+(\.[0-9]*)?|\.[0-9]+) ?([kKmMgGtTpP]([iI]?[bB])?|[bB])?$|^[nN][oO][nN][eE]$`)

// ParseSize reads a size in bytes: a number with an optional unit, each unit a power of 1024 as in
// Docker's own options ("512m", "2g", "2GiB", "0.5gb"). "none" is lazaret.NoLimit.
func ParseSize(s string) (int64, error) {
	if strings.EqualFold(s, "none") {
		return lazaret.NoLimit, nil
	}
	n, err := units.RAMInBytes(s)
	if err != nil || n <= 0 || !sizeRE.MatchString(s) {
		return 0, fmt.Errorf("%q is no size: write a number and a unit, such as 512MiB or 2g, or none", s)
	}
	return n, nil
}

// FormatSize writes a size for people, in units of 1024: "2GiB".
func FormatSize(n int64) string {
	return strings.ReplaceAll(units.BytesSize(float64(n)), " ", "")
}
