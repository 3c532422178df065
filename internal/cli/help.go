package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// columns is the maximum width of help texts and text output.
const columns = 80

// completeHelp wraps every command's help to the width. It also makes unknown command names an error where cobra
// would print the help and succeed.
func completeHelp(root *cobra.Command) {
	fit := fmt.Sprintf(".FlagUsagesWrapped %d ", columns)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fit))
	root.SetHelpCommand(newHelpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() {
			cmd.Args = noCommand
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Short = "Print a script that completes commands and flags in a shell"
		cmd.Long = "Completion prints a script that makes a shell complete Fumehood's commands and\nflags."
		cmd.Example = "  source <(fumehood completion bash)"
		for _, shell := range cmd.Commands() {
			shell.Short = "Print the script for " + shell.Name()
			shell.Long = ""
			shell.Example = "  fumehood completion " + shell.Name() + " >fumehood." + shell.Name()
			shell.Args = noArguments
		}
	}
}

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Print the help of a command",
		Example: "  fumehood help run",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usageError("there is no command %q", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// noArguments is the argument check of commands that take only flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("%s takes no arguments, but %q was given", strings.TrimPrefix(cmd.CommandPath(), "fumehood "), args[0])
	}
	return nil
}

// noCommand is the argument check of commands that have subcommands.
func noCommand(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("there is no command %q", args[0])
	}
	return nil
}

// wrap breaks text between words so that no line is wider than columns. All lines but the first are indented; the
// first is taken to start at the indentation. A word longer than a line is not broken.
func wrap(text string, indent int) string {
	var b strings.Builder
	used := indent
	for i, word := range strings.Fields(text) {
		switch n := len([]rune(word)); {
		case i == 0:
			used += n
		case used+1+n > columns:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			used = indent + n
		default:
			b.WriteByte(' ')
			used += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}
