package cli

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite the help texts in docs/cli.md")

// help returns the help of each command, except hidden ones, by its command path. Without all, only the program's own
// help has the flags that every command takes.
func help(t *testing.T, all bool) map[string]string {
	t.Helper()
	var out bytes.Buffer
	a := &commandLine{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: &out}}
	texts := map[string]string{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		out.Reset()
		cmd.InitDefaultHelpFlag()
		cmd.Flags().Lookup("help").Hidden = !all && cmd.HasParent()
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		texts[cmd.CommandPath()] = out.String()
		if !all {
			cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(a.rootCommand())
	return texts
}

func TestHelp_format(t *testing.T) {
	texts := help(t, true)
	if len(texts) < 11 {
		t.Errorf("only %d commands", len(texts))
	}
	for command, text := range texts {
		if !strings.Contains(text, "\nExamples:\n  ") {
			t.Errorf("%s has no example", command)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("%s: %d columns: %s", command, n, line)
			}
		}
	}
}

// Blocks of docs/cli.md that begin with "$ fumehood ... --help" have the help texts, without the flags that every command
// takes: only the program's own help has them.
func TestHelp_docs(t *testing.T) {
	const file = "../../docs/cli.md"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	texts := help(t, false)
	seen := map[string]bool{}
	block := regexp.MustCompile("(?s)```\n\\$ (fumehood[a-z ]*?) --help\n.*?```\n")
	page := block.ReplaceAllStringFunc(string(old), func(b string) string {
		command := block.FindStringSubmatch(b)[1]
		seen[command] = true
		text, ok := texts[command]
		if !ok {
			t.Errorf("unknown command %q", command)
			return b
		}
		return "```\n$ " + command + " --help\n" + text + "```\n"
	})
	for command := range texts {
		if !seen[command] && command != "fumehood help" && !strings.HasPrefix(command, "fumehood completion") {
			t.Errorf("docs/cli.md has no help text of %s", command)
		}
	}
	if page == string(old) {
		return
	}
	if !*updateDocs {
		t.Fatal("the help texts in docs/cli.md are outdated: run go test ./internal/cli -run TestHelp_docs -update-docs")
	}
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}
