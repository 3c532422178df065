package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/internal/jsontext"
	"github.com/fumehood/fumehood/session"
)

func (a *commandLine) newSessionStreamCommand() *cobra.Command {
	var f sessionFlags
	cmd := &cobra.Command{
		Use:   "stream SPEC",
		Short: "Run commands from standard input in one container",
		Long: `Stream copies the workspace, starts one container, and runs commands in it, one
after the other, until standard input ends. What a command changes stays for the
next one. The spec's setup runs before each command in its shell,
as for "fumehood session run".

Standard input has one JSON object for each command. All keys are optional:
  {"command": "make test", "timeout": "90s", "env": {"CI": "1"}}
  {"entry": "main"}
Without command, the spec's command runs, with the entry if one is given.

Standard output has one JSON object in each line: pieces of output as they
arrive, and a result at the end of each command. Text that is not UTF-8 is
also given as base64. The exit code is 0 if all commands could be run, however
they ended. An error is printed as an object too and ends the session.`,
		Example: `  echo '{"command": "pwd"} {"command": "ls"}' |
      fumehood session stream env.yaml --workspace work
  fumehood session stream env.yaml --workspace work --snapshot-out after.tar.gz`,
		Args: wantArguments("SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := f.load("session stream", args[0])
			if err != nil {
				return err
			}
			err = a.streamSession(cmd.Context(), opts)
			if err == nil {
				return nil
			}
			return errors.Join(err, a.printLine(streamLine{Error: describe(err)}))
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// streamLine is a line that `fumehood session stream` prints: a piece of output, a result, or an error.
type streamLine struct {
	Phase  session.Phase      `json:"phase,omitempty"`  // of the output: setup or command
	Stream string             `json:"stream,omitempty"` // stdout or stderr
	Text   string             `json:"text,omitempty"`
	Base64 []byte             `json:"base64,omitempty"` // the bytes, if they are not UTF-8
	Result *api.SessionResult `json:"result,omitempty"`
	Error  *api.Error         `json:"error,omitempty"`
}

// printLine prints a JSON object on one line.
func (a *commandLine) printLine(l streamLine) error {
	return api.Encode(a.Out, "", l)
}

func (a *commandLine) streamSession(ctx context.Context, o sessionOptions) error {
	journal, file, err := a.openJournal(o.journal)
	if err != nil {
		return err
	}
	defer file.Close()
	o.Open.Journal, o.Published = journal, a.tellPorts
	o.Show = func(ev session.Event) error {
		l := streamLine{Phase: ev.Phase, Stream: ev.Stream.String(), Text: string(ev.Data)}
		if !utf8.Valid(ev.Data) {
			l.Base64 = ev.Data
		}
		return a.printLine(l)
	}
	o.Ended = func(r *session.Result) error {
		end := api.SessionResultOf(r)
		for _, o := range []*fumehood.Output{&end.Stdout, &end.Stderr, &end.SetupStdout, &end.SetupStderr} {
			o.Bytes = nil // printed before
		}
		return a.printLine(streamLine{Result: end})
	}
	c, err := a.actions().StreamSession(ctx, o.SessionOptions, readCommands(a.In))
	if err == nil && c != nil {
		a.tell("%s: %s", o.SnapshotOut, summary(c.Manifest))
	}
	return err
}

// commandJSON is a command to run.
type commandJSON struct {
	Command api.Text `json:"command"`
	Entry   api.Text `json:"entry"`
	Timeout string   `json:"timeout"`
	CPUTime string   `json:"cpu_time"`
	Env     api.Env  `json:"env"`
}

// options checks a command. Its errors have no class.
func (c commandJSON) options() (o session.ExecuteOptions, err error) {
	o = session.ExecuteOptions{Command: string(c.Command), Entry: string(c.Entry), Env: c.Env}
	if c.Command != "" && c.Entry != "" {
		return o, errors.New("command and entry exclude each other")
	}
	for _, limit := range []struct {
		name, text string
		to         *time.Duration
	}{{"timeout", c.Timeout, &o.Timeout}, {"cpu_time", c.CPUTime, &o.CPUTime}} {
		if limit.text == "" {
			continue
		}
		if *limit.to, err = time.ParseDuration(limit.text); err == nil && *limit.to <= 0 {
			err = fmt.Errorf("%s %s is not above 0", limit.name, limit.text)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// readCommand reads the next command. Text that package encoding/json would alter is an error.
func readCommand(d *json.Decoder, to *commandJSON) error {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return err
	}
	if err := jsontext.Check(raw); err != nil {
		return err
	}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	return strict.Decode(to)
}

// readCommands returns a function that reads the next command, or returns io.EOF. When ctx ends, the function returns,
// but a read that waits for input cannot be stopped. It ends with the process.
func readCommands(in io.Reader) func(ctx context.Context) (session.ExecuteOptions, error) {
	d, number := json.NewDecoder(in), 0
	return func(ctx context.Context) (o session.ExecuteOptions, err error) {
		number++
		type read struct {
			commandJSON
			err error
		}
		done := make(chan read, 1)
		go func() {
			var r read
			r.err = readCommand(d, &r.commandJSON)
			done <- r
		}()
		select {
		case r := <-done:
			if err = r.err; err == nil {
				o, err = r.options()
			}
		case <-ctx.Done():
			return o, &fumehood.Error{Op: "read commands", Class: fumehood.ErrCanceled, Err: fumehood.Cause(ctx)}
		}
		if err == nil || errors.Is(err, io.EOF) {
			return o, err
		}
		return o, &fumehood.Error{Op: fmt.Sprintf("read command %d", number), Class: fumehood.ErrConfig, Err: err}
	}
}
