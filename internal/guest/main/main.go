// Command fumehood-guest runs inside containers and starts commands there for the host. See package guest.
package main

import (
	"os"

	"github.com/fumehood/fumehood/internal/guest"
)

func main() {
	os.Exit(guest.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
