// Package fumehood runs untrusted code in disposable sandboxes and tells the truth about what
// happened there.
//
// A [Provider] (package provider/docker, or provider/local for trusted code) starts a [Sandbox]. A
// sandbox has one or more services, of which one is the default; in a [Service] commands are run and
// files are read and written:
//
//	sb, err := provider.Start(ctx, fumehood.Spec{Image: "python:3.12-slim"})
//	if err != nil { ... }
//	defer sb.Close(ctx)
//	res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"python3", "-c", "print(6*7)"}, Timeout: 10 * time.Second})
//
// Two things are never mixed. How a program ended (it exited, was killed by a signal, ran out of time
// or memory) is a value, the [Result]. How we failed (no daemon, bad configuration, a lost connection)
// is an error, of one of a few classes that errors.Is tells apart: [ErrConfig], [ErrUnavailable] (which may be an [ErrBroken]),
// [ErrInfrastructure], [ErrLimit], [ErrCancelled], [ErrUnsupported], [ErrNotStarted] and those of files.
//
// This package is the contract, and imports the standard library only. What makes sandboxes is in package provider and in the
// packages below it.
package fumehood
