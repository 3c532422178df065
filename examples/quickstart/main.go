// Command quickstart runs one line of Python in a sandbox without network, with limited memory and processes.
// Nothing remains afterwards.
//
//	go run ./examples/quickstart [image]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

func main() {
	docker.RunReaper() // cleans up if this program is killed
	image := "python:3.12-slim"
	if len(os.Args) > 1 {
		image = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, image)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, image string) (err error) {
	provider, err := docker.New(ctx, docker.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Close(ctx)) }() // removes any remaining sandbox

	sb, err := provider.Start(ctx, fumehood.Spec{Image: image})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close(ctx)) }()

	res, err := sb.Exec(ctx, fumehood.Cmd{
		Args:    []string{"python3", "-c", "print(6*7)"},
		Timeout: 10 * time.Second,
	})
	if err != nil {
		return err // our failure; how the program ended is in the result
	}
	fmt.Printf("%s with code %d, printed %s", res.Outcome, res.ExitCode, res.Stdout.Text())
	return nil
}
