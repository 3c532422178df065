package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/session"
	"github.com/lazaret/lazaret/spec"
	"github.com/lazaret/lazaret/workspace"
)

func (a *app) newSessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Run a workspace's code in the environment that a spec describes",
		Long: `Session runs the code of a workspace as an environment spec says: image, set-up,
mounts, variables, command. docs/session.md tells what a session is.`,
		Example: `  lazaret session run env.yaml --workspace work`,
		Args:    noCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.newSessionRunCommand())
	return cmd
}

// sessionOptions are what `lazaret session run` was asked to do.
type sessionOptions struct {
	spec, workspace, resume, entry, out string
	eval, json                          bool
	timeout                             time.Duration
}

func (a *app) newSessionRunCommand() *cobra.Command {
	var o sessionOptions
	cmd := &cobra.Command{
		Use:   "run SPEC",
		Short: "Run the spec's command once, over a copy of a workspace",
		Long: `Run copies the workspace, runs the spec's set-up and command over the copy, in
one shell, and removes the copy. --snapshot-out keeps what became of it.

Standard output is the command's; what the set-up writes goes to standard error.
The command's standard input is empty. The exit code is the command's own; one
of a set-up that ended before the command comes with a message, and 125 stands
for its 0. The spec says which provider it is, whatever --provider says.`,
		Example: `  lazaret session run env.yaml --workspace work --entry main
  lazaret session run env.yaml --workspace work --snapshot-out after.tar.gz
  lazaret session run env.yaml --resume after.tar.gz --eval --json`,
		Args: wantArguments("SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.spec = args[0]
			switch {
			case (o.workspace == "") == (o.resume == ""):
				return usageError("session run needs --workspace DIR or --resume FILE")
			case o.eval && o.out != "":
				return usageError("--snapshot-out is for agents, not for --eval")
			case o.timeout < 0:
				return usageError("--timeout %v is negative", o.timeout)
			}
			return a.runSession(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.workspace, "workspace", "", "the `folder` that is copied")
	flags.StringVar(&o.resume, "resume", "", "a snapshot's `file` to begin with, in the workspace's place")
	flags.StringVar(&o.entry, "entry", "main", "the `entry` that is run, as the spec's entry_file names its file")
	flags.BoolVar(&o.eval, "eval", false, "evaluate: run eval_commands too, as this machine's user")
	flags.DurationVar(&o.timeout, "timeout", 0, "end the command after this `time`, such as 90s (default: no limit); the set-up has the spec's")
	flags.StringVar(&o.out, "snapshot-out", "", "write a snapshot of the workspace as it is afterwards to this `file`, which is replaced")
	flags.BoolVar(&o.json, "json", false, "print a JSON object with outcome, exit code and output instead of the output")
	return cmd
}

// sessionJSON is the object that `lazaret session run --json` prints.
type sessionJSON struct {
	Outcome     *string            `json:"outcome"`
	ExitCode    *int               `json:"exit_code"`
	SetupEnded  bool               `json:"setup_ended"` // the script ended before the command began
	Usage       *usageJSON         `json:"usage,omitempty"`
	SetupStdout *outputJSON        `json:"setup_stdout"`
	SetupStderr *outputJSON        `json:"setup_stderr"`
	Stdout      *outputJSON        `json:"stdout"`
	Stderr      *outputJSON        `json:"stderr"`
	ElapsedMS   float64            `json:"elapsed_ms"`
	Changes     []workspace.Change `json:"changes,omitempty"` // with --snapshot-out: what became of the workspace
	Error       *errorJSON         `json:"error"`
}

func (a *app) runSession(ctx context.Context, o sessionOptions) error {
	var obj sessionJSON
	env, err := spec.Load(o.spec)
	if err != nil {
		return err
	}
	res, err := a.inSession(ctx, env, o, &obj)
	if o.json {
		obj.Error = describe(err)
		if res != nil {
			obj.fill(res)
		}
		if jerr := a.printJSON(obj); jerr != nil {
			return jerr
		}
	}
	if err != nil {
		return err
	}
	return a.sessionVerdict(env, o, res)
}

func (obj *sessionJSON) fill(res *session.Result) {
	outcome := string(res.Outcome)
	obj.Outcome, obj.ExitCode, obj.SetupEnded, obj.ElapsedMS = &outcome, &res.ExitCode, res.SetupEnded, ms(res.Elapsed)
	obj.SetupStdout, obj.SetupStderr = outputOf(res.SetupStdout), outputOf(res.SetupStderr)
	obj.Stdout, obj.Stderr = outputOf(res.Stdout), outputOf(res.Stderr)
	if u := res.Usage; u != (lazaret.Usage{}) {
		obj.Usage = &usageJSON{ms(u.User), ms(u.System), u.MaxRSS, u.Peak, u.OOMKills, u.PIDsLimits}
	}
}

// inSession opens a session, runs the command and keeps a snapshot.
func (a *app) inSession(ctx context.Context, env *spec.Environment, o sessionOptions, obj *sessionJSON) (res *session.Result, err error) {
	provider, err := a.open(ctx, env.Type)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, provider.Close(ctx)) }()
	kind := session.Agent
	if o.eval {
		kind = session.Evaluation
	}
	s, err := session.Open(ctx, session.Options{
		Provider: provider, Environment: env, Kind: kind, Workspace: o.workspace, Snapshot: o.resume, Logger: a.log,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	r, err := s.Spawn(ctx, session.SpawnOptions{})
	if err != nil {
		return nil, err
	}
	run := session.ExecuteOptions{Entry: o.entry, Timeout: o.timeout}
	if o.json {
		res, err = r.Execute(ctx, run)
	} else {
		res, err = a.streamSession(ctx, r, run)
	}
	if err != nil || o.out == "" {
		return res, err
	}
	c, err := s.FinishCheckpoint(ctx)
	if err != nil {
		return res, err
	}
	obj.Changes = c.Changes
	if err := copyOver(c.Snapshot, o.out); err != nil {
		return res, err
	}
	if !o.json {
		fmt.Fprintf(a.Err, "lazaret: %s: %s\n", o.out, summary(c.Manifest))
	}
	return res, nil
}

// streamSession passes output on as it comes, the set-up's to standard error.
func (a *app) streamSession(ctx context.Context, r *session.Runtime, run session.ExecuteOptions) (*session.Result, error) {
	run.StdoutCap, run.StderrCap = lazaret.KeepNone, lazaret.KeepNone // shown, not kept
	for ev, err := range r.Stream(ctx, run) {
		if err != nil {
			return nil, err
		}
		if ev.Result != nil {
			return ev.Result, nil
		}
		to := a.Err
		if ev.Phase == session.Command && ev.Stream == lazaret.Stdout {
			to = a.Out
		}
		if _, err := to.Write(ev.Data); err != nil {
			return nil, outputError(err)
		}
	}
	return nil, &lazaret.Error{Op: "run session", Class: lazaret.ErrInfrastructure, Err: io.ErrUnexpectedEOF}
}

// copyOver copies a snapshot's file. What is there under the name is always whole.
func copyOver(from, to string) (err error) {
	unfinished := beside(to)
	defer func() {
		var p *fs.PathError
		if err != nil {
			if errors.As(err, &p) {
				err = p.Err // the path is ours, or the user's own
			}
			_ = os.Remove(unfinished) // that it is there is told by what went wrong
			err = &lazaret.Error{Op: "write snapshot", Path: to, Class: lazaret.ErrConfig, Err: err}
		}
	}()
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666) // the umask decides who may read it
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.Rename(unfinished, to)
}

// sessionVerdict is verdict for a session's command.
func (a *app) sessionVerdict(env *spec.Environment, o sessionOptions, res *session.Result) error {
	switch {
	case res.SetupEnded && res.TimedOut():
		return &exitError{code: exitTimeout, err: fmt.Errorf("the set-up timed out after %v", env.WithDefaults().Setup.Timeout)}
	case res.SetupEnded && res.Outcome == lazaret.Exited:
		code := res.ExitCode
		if code == 0 {
			code = exitFailure
		}
		return &exitError{code: code, err: fmt.Errorf("the set-up ended with code %d before the command began", res.ExitCode)}
	}
	return a.verdict(
		runOptions{cmd: lazaret.Cmd{Wall: o.timeout}, spec: described{Spec: lazaret.Spec{Limits: lazaret.Limits(env.Limits)}}},
		&lazaret.Result{Outcome: res.Outcome, ExitCode: res.ExitCode, Why: res.Why},
	)
}
