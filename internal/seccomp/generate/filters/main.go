// Command filters writes the programs of Fumehood's seccomp profile to the folder named by its argument, one for each
// architecture.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fumehood/fumehood/internal/native/filter"
	"github.com/fumehood/fumehood/internal/seccomp"
)

func writeFilters(folder string) error {
	profile, err := seccomp.Load("")
	if err != nil {
		return err
	}
	for _, arch := range []string{"amd64", "arm64"} {
		program, err := filter.Compile(profile, arch, nil, filter.DefaultKernel)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, arch+".hex"), []byte(lines(program)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := writeFilters(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "write the filters:", err)
		os.Exit(1)
	}
}

// lines returns a program as text, with a line of hexadecimal digits for each instruction.
func lines(program []byte) string {
	var text strings.Builder
	for instruction := range slices.Chunk(program, 8) {
		fmt.Fprintf(&text, "%x\n", instruction)
	}
	return text.String()
}
