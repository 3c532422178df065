package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/session/spec"
)

func (a *commandLine) newSessionCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check SPEC",
		Short: "Check a spec, and list what differs from SlopCodeBench",
		Long: `Check reads an environment spec and reports all problems with their lines. For a
valid spec it lists the keys, also absent ones, that have another meaning for
SlopCodeBench. docs/spec.md has the whole table. Nothing is started, and neither
mounts nor images are looked up.

The exit code is 0 for a valid spec, with or without differences.`,
		Example: `  fumehood session check env.yaml
  fumehood session check env.yaml --json`,
		Args: wantArguments("SPEC"),
		RunE: func(_ *cobra.Command, args []string) error { return a.checkSpec(args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// checkJSON is the object that `fumehood session check --json` prints.
type checkJSON struct {
	File        string            `json:"file"`
	Valid       bool              `json:"valid"`
	Type        string            `json:"type,omitempty"`
	Differences []spec.Difference `json:"differences"`
	Error       *api.Error        `json:"error"`
}

func (a *commandLine) checkSpec(file string, asJSON bool) error {
	e, differences, err := spec.CompareSlopCodeBench(file)
	if asJSON {
		obj := checkJSON{File: file, Valid: err == nil, Differences: append([]spec.Difference{}, differences...), Error: describe(err)}
		if e != nil {
			obj.Type = e.Type
		}
		if jerr := a.printJSON(obj); jerr != nil {
			return jerr
		}
		return err
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: valid, %s from SlopCodeBench\n", file, count(len(differences), "difference"))
	for _, d := range differences {
		at := file + ": " + d.Key + " (absent)"
		if d.Line > 0 {
			at = fmt.Sprintf("%s:%d: %s", file, d.Line, d.Key)
		}
		fmt.Fprintf(&b, "%s\n  SlopCodeBench: %s\n  Fumehood:      %s\n", at, wrap(d.SlopCodeBench, 17), wrap(d.Fumehood, 17))
	}
	return a.say("%s", b.String())
}
