// Command build builds the guests into internal/guest/guestbin/embedded, unless current ones are there. `make build` and
// `make test` run it. With -sys it instead writes source/sys.txtar, from the version of golang.org/x/sys that go.mod
// requires. Its working directory must be internal/guest/guestbin.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/internal/guest/guestbin/source"
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
