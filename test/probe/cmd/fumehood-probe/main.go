// Command fumehood-probe is the program that the conformance suite runs in sandboxes; see package probe.
package main

import (
	"context"
	"os"

	"github.com/fumehood/fumehood/test/probe"
)

func main() {
	os.Exit(probe.Main(context.Background(), probe.Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Environ: os.Environ(), System: probe.Host(),
	}))
}
