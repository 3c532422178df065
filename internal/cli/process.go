package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
)

func (a *commandLine) newProcessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "process",
		Short: "Manage detached commands of named sandboxes",
		Long: `Process manages the commands of "fumehood exec --detach". Each has a number,
which is unique in its service. Command and kept output stay until the command
is forgotten, or the sandbox is removed or stopped.`,
		Example: "  fumehood process list box\n  fumehood process follow box 1",
	}
	cmd.AddCommand(
		a.newProcessListCommand(), a.newProcessFollowCommand(), a.newProcessWaitCommand(), a.newProcessWriteCommand(),
		a.newProcessSignalCommand(), a.newProcessKillCommand(), a.newProcessForgetCommand(),
	)
	return cmd
}

// rejoin opens a named sandbox, loads the service's detached commands and calls f with the service.
func (a *commandLine) rejoin(ctx context.Context, n named, f func(fumehood.Service) error) error {
	return a.in(ctx, n, func(_ fumehood.Sandbox, svc fumehood.Service) error {
		if err := svc.RefreshProcesses(ctx); err != nil {
			return err
		}
		return f(svc)
	})
}

// newNumberedCommand completes cmd, which acts on one detached command, with the arguments NAME and ID. more are the
// names of further arguments.
func (a *commandLine) newNumberedCommand(cmd *cobra.Command, f func(ctx context.Context, p fumehood.Process, args []string) error, more ...string) *cobra.Command {
	var n named
	names := append([]string{"NAME", "ID"}, more...)
	cmd.Use += " " + strings.Join(names, " ")
	cmd.Args = wantArguments(names...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := strconv.Atoi(args[1])
		if err != nil || id < 1 {
			return usageError("%q is not a number of a detached command", args[1])
		}
		n.name = args[0]
		ctx := cmd.Context()
		return a.rejoin(ctx, n, func(svc fumehood.Service) error {
			p, err := svc.Process(id)
			if err != nil {
				return err
			}
			return f(ctx, p, args[2:])
		})
	}
	n.add(cmd.Flags())
	return cmd
}

func (a *commandLine) newProcessListCommand() *cobra.Command {
	var n named
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list NAME",
		Short:   "List a service's detached commands",
		Example: "  fumehood process list box\n  fumehood process list shop --service db --json",
		Args:    wantArguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n.name = args[0]
			return a.rejoin(cmd.Context(), n, func(svc fumehood.Service) error { return a.listProcesses(svc, asJSON) })
		},
	}
	n.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func (a *commandLine) listProcesses(svc fumehood.Service, asJSON bool) error {
	all := svc.Processes()
	if asJSON {
		objs := make([]fumehood.ProcessInfo, len(all))
		for i, p := range all {
			objs[i] = p.Info()
			objs[i].Started = objs[i].Started.UTC()
		}
		return a.printJSON(objs)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tSTARTED\tCOMMAND")
	for _, p := range all {
		info := p.Info()
		state := "running"
		if info.Ended {
			state = "ended"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", info.ID, state, info.Started.UTC().Format(time.RFC3339), quoteArgs(info.Args))
	}
	return w.Flush()
}

// quoteArgs formats a command's arguments on one line. Arguments that would be ambiguous or unsafe on a terminal are
// quoted.
func quoteArgs(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = arg
		if q := strconv.Quote(arg); arg == "" || strings.ContainsAny(arg, " '") || q != `"`+arg+`"` {
			words[i] = q
		}
	}
	return strings.Join(words, " ")
}

func (a *commandLine) newProcessFollowCommand() *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use:   "follow",
		Short: "Print a detached command's output until it ends",
		Long: `Follow prints the kept output of a detached command, then new output, and exits
with the command's exit code. Interrupting follow leaves the command running. A
message reports how much of the beginning is no longer kept.`,
		Example: "  fumehood process follow box 1\n  fumehood process follow box 1 --from 4096",
	}
	cmd = a.newNumberedCommand(cmd, func(ctx context.Context, p fumehood.Process, _ []string) error {
		if from < 0 {
			return usageError("--from %d is negative", from)
		}
		return a.follow(ctx, p, from)
	})
	cmd.Flags().Int64Var(&from, "from", 0, "start at this `offset` of each output, in bytes")
	return cmd
}

func (a *commandLine) follow(ctx context.Context, p fumehood.Process, from int64) error {
	var mu sync.Mutex // held while a chunk is written
	var both sync.WaitGroup
	var errs [2]error
	for i, s := range []fumehood.Stream{fumehood.Stdout, fumehood.Stderr} {
		both.Go(func() { errs[i] = a.followOne(p.Follow(ctx, s, from), s, from, &mu) })
	}
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return a.awaitProcess(ctx, p, nil)
}

func (a *commandLine) followOne(chunks iter.Seq2[fumehood.Chunk, error], s fumehood.Stream, at int64, mu *sync.Mutex) error {
	to := forPeople(a.of(s))
	for c, err := range chunks {
		if err != nil {
			return err
		}
		mu.Lock()
		if missed := c.Offset - at; missed > 0 {
			a.tell("%d bytes of %s are no longer kept", missed, s)
		}
		at = c.Offset + int64(len(c.Data))
		_, err = to.Write(c.Data)
		mu.Unlock()
		if err != nil {
			return outputError(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	return to.Close()
}

func (a *commandLine) newProcessWaitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "wait",
		Short:   "Wait until a detached command ends, and exit with its exit code",
		Example: "  fumehood process wait box 1",
	}
	return a.newNumberedCommand(cmd, a.awaitProcess)
}

func (a *commandLine) awaitProcess(ctx context.Context, p fumehood.Process, _ []string) error {
	res, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	if res.Outcome == fumehood.TimedOut {
		return &exitError{code: exitTimeout, err: errors.New("the command timed out")}
	}
	return a.resultError(fumehood.Cmd{}, res)
}

func (a *commandLine) newProcessWriteCommand() *cobra.Command {
	var leave bool
	cmd := &cobra.Command{
		Use:   "write",
		Short: "Pass standard input on to a detached command",
		Long: `Write passes its standard input on to a command of "fumehood exec -i --detach",
and then closes the command's input unless --open is given.`,
		Example: "  echo 'print(6*7)' | fumehood process write box 1 --open",
	}
	cmd = a.newNumberedCommand(cmd, func(_ context.Context, p fumehood.Process, _ []string) error {
		if _, err := io.Copy(p, a.In); err != nil {
			return err
		}
		if leave {
			return nil
		}
		return p.CloseStdin()
	})
	cmd.Flags().BoolVar(&leave, "open", false, "keep the command's input open")
	return cmd
}

// signals are the signals that can be given by name, with Linux's numbers (signal(7)).
var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "TERM": 15, "CONT": 18, "STOP": 19}

func (a *commandLine) newProcessSignalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "signal",
		Short:   "Send a signal to a detached command",
		Long:    wrap("Signal sends a signal to the process group of a detached command: "+strings.Join(slices.Sorted(maps.Keys(signals)), ", ")+", or a Linux signal number.", 0),
		Example: "  fumehood process signal box 1 TERM",
	}
	return a.newNumberedCommand(cmd, func(ctx context.Context, p fumehood.Process, args []string) error {
		sig, ok := signals[strings.TrimPrefix(args[0], "SIG")]
		if !ok {
			var err error
			if sig, err = strconv.Atoi(args[0]); err != nil || sig < 1 || sig > 64 {
				return usageError("there is no signal %q", args[0])
			}
		}
		return p.Signal(ctx, sig)
	}, "SIGNAL")
}

func (a *commandLine) newProcessKillCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "kill",
		Short:   "Kill a detached command and all its descendants",
		Example: "  fumehood process kill box 1",
	}
	return a.newNumberedCommand(cmd, func(ctx context.Context, p fumehood.Process, _ []string) error { return p.Kill(ctx) })
}

func (a *commandLine) newProcessForgetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "forget",
		Short:   "Delete a detached command that has ended, and its output",
		Example: "  fumehood process forget box 1",
	}
	return a.newNumberedCommand(cmd, func(ctx context.Context, p fumehood.Process, _ []string) error { return p.Forget(ctx) })
}
