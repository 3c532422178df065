// Command fumehood runs untrusted code in disposable sandboxes.
package main

import (
	"context"
	"os"

	"github.com/fumehood/fumehood/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
