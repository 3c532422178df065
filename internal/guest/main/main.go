// The guest uses one processor, so the runtime need not find out how many it may use.
//
//go:debug containermaxprocs=0

// Command fumehood-guest runs inside containers and starts commands there for the host. See package guest.
package main

import (
	"os"

	"github.com/fumehood/fumehood/internal/guest"
)

func init() { //nolint:gochecknoinits // see guest.Worker
	if code, is := guest.Worker(os.Args); is {
		os.Exit(code)
	}
}

func main() {
	os.Exit(guest.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
