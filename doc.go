// Package fumehood runs untrusted code in disposable sandboxes and reports reliably what happened there.
//
// A [Provider] (package provider/docker, or provider/local for trusted code) starts a [Sandbox]. A sandbox has one
// or more services, one of which is the default. Commands run, and files are read and written, in a [Service]:
//
//	sb, err := provider.Start(ctx, fumehood.Spec{Image: "python:3.12-slim"})
//	if err != nil { ... }
//	defer sb.Close(ctx)
//	res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"python3", "-c", "print(6*7)"}, Timeout: 10 * time.Second})
//
// Program outcomes and infrastructure failures are kept apart. How a program ended (it exited, was killed by a
// signal, ran out of time or memory) is a value, the [Result]. How Fumehood failed (no daemon, bad configuration, a
// lost connection) is an error. Each error has one of a few classes, to be matched with errors.Is: [ErrConfig],
// [ErrUnavailable] (which includes [ErrBroken]), [ErrInfrastructure], [ErrLimit], [ErrCanceled], [ErrUnsupported],
// [ErrNotStarted] and the file errors.
//
// This package defines the contract and imports only the standard library. Package provider and the packages below
// it create sandboxes.
package fumehood
