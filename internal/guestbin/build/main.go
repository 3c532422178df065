// Command build builds the guests into internal/guestbin/embedded, unless they are there and their sources have not
// changed. `make build` and `make test` run it. With -sys it first writes source/sys.txtar again, from the version of
// golang.org/x/sys that go.mod requires. It is run in internal/guestbin.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/fumehood/fumehood/internal/guestbin"
	"github.com/fumehood/fumehood/internal/guestbin/source"
)

func main() {
	sys := flag.Bool("sys", false, "write source/sys.txtar")
	flag.Parse()
	ctx := context.Background()
	var err error
	if *sys {
		var text []byte
		if text, err = source.Sys(ctx); err == nil {
			err = os.WriteFile("source/sys.txtar", text, 0o644)
		}
	} else {
		err = guestbin.Embed(ctx, "embedded")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the guests:", err)
		os.Exit(1)
	}
}
