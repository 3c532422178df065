// Command fumehood runs untrusted code in disposable sandboxes.
package main

import (
	"context"
	"os"

	_ "github.com/fumehood/fumehood/internal/lategc"
	_ "github.com/fumehood/fumehood/internal/owner/reaper/early"

	"github.com/fumehood/fumehood/internal/cli"
	"github.com/fumehood/fumehood/provider/docker"
)

func main() {
	docker.RunReaper()
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
