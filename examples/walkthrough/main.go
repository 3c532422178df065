// Walkthrough runs the steps of a benchmark with package session. An agent edits a workspace over three
// checkpoints. Each checkpoint is evaluated with an asset that the agent never sees. Then the agent resumes from
// the second checkpoint. The program prints each step. Run it in its own folder.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
)

// steps are the agent's commands. A real agent would ask a model for them.
var steps = []string{
	`printf 'for n in range(1, 6):\n    print("fizz" if n %% 3 == 0 else n)\n' > main.py`,
	`sed -i 's/else n/else "buzz" if n % 5 == 0 else n/' main.py`,
	`echo 'print("done")' >> main.py`,
}

func main() {
	docker.RunReaper() // cleans up if this program is killed
	if err := walk(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func walk(ctx context.Context) (err error) {
	provider, err := docker.New(ctx, docker.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, provider.Close(ctx)) }()
	env, err := spec.Load("env.yaml")
	if err != nil {
		return err
	}

	agent, err := session.Open(ctx, session.Options{Provider: provider, Environment: env, Kind: session.Agent, Workspace: "workspace"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.Close(ctx)) }()
	runtime, err := agent.Spawn(ctx, session.SpawnOptions{})
	if err != nil {
		return err
	}
	var kept []*session.Checkpoint
	for _, step := range steps {
		if _, err := runtime.Execute(ctx, session.ExecuteOptions{Command: step}); err != nil {
			return err
		}
		c, err := agent.FinishCheckpoint(ctx)
		if err != nil {
			return err
		}
		kept = append(kept, c)
		fmt.Printf("checkpoint %d: %s %s\n", c.Number, c.Changes[0].Kind, c.Changes[0].Path)
		if err := evaluate(ctx, provider, env, c); err != nil {
			return err
		}
	}

	fmt.Println("what the second has changed:")
	fmt.Print(kept[1].Changes[0].Hunks)
	return resume(ctx, provider, env, kept[1])
}

// evaluate evaluates a checkpoint in its own session, with an asset that the agent's session lacks.
func evaluate(ctx context.Context, provider fumehood.Provider, env *spec.Environment, c *session.Checkpoint) (err error) {
	s, err := session.Open(ctx, session.Options{
		Provider: provider, Environment: env, Kind: session.Evaluation, Snapshot: c.Snapshot,
		AssetDir: "assets", Assets: []map[string]spec.Asset{{"expected": {Path: "expected.txt"}}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	res, err := s.Exec(ctx, session.SpawnOptions{}, session.ExecuteOptions{Command: `python3 main.py | diff - "$EXPECTED"`})
	if err != nil {
		return err
	}
	verdict := "passes"
	if res.ExitCode != 0 {
		verdict = "fails: " + strings.ReplaceAll(strings.TrimSpace(res.Stdout.Text()), "\n", "; ")
	}
	fmt.Println("  it", verdict)
	return nil
}

// resume opens a session from a checkpoint and runs the program.
func resume(ctx context.Context, provider fumehood.Provider, env *spec.Environment, c *session.Checkpoint) (err error) {
	s, err := session.Open(ctx, session.Options{Provider: provider, Environment: env, Kind: session.Agent, Snapshot: c.Snapshot})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	res, err := s.Exec(ctx, session.SpawnOptions{}, session.ExecuteOptions{Entry: "main"})
	if err != nil {
		return err
	}
	fmt.Printf("resumed from checkpoint %d: %s, then:\n%s", c.Number, strings.TrimSpace(res.SetupStdout.Text()), res.Stdout.Text())
	return nil
}
