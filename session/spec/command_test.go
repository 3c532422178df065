package spec

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestCommands_CommandLine(t *testing.T) {
	for _, c := range []struct {
		says     string
		commands Commands
		entry    string
		agent    bool
		want     string
	}{
		{"an evaluation", Commands{EntryFile: "{entry_file}.py", Command: "python"}, "main", false, "python main.py"},
		{"an agent", Commands{EntryFile: "{entry_file}.py", Command: "python", AgentCommand: "uv run"}, "main", true, "uv run main.py"},
		{"evaluation, with AgentCommand", Commands{EntryFile: "{entry_file}.py", Command: "python", AgentCommand: "uv run"}, "main", false, "python main.py"},
		{"an agent without AgentCommand", Commands{EntryFile: "{entry_file}.py", Command: "python"}, "main", true, "python main.py"},
		{"no entry file", Commands{Command: "make run"}, "main", false, "make run"},
		{"shell text as command", Commands{EntryFile: "{entry_file}", Command: "A=1 exec java -jar"}, "a/b.jar", false, "A=1 exec java -jar a/b.jar"},
		{"other braces", Commands{EntryFile: "{x}{entry_file}{}", Command: "cat"}, "m", false, "cat '{x}m{}'"},
		{"twice", Commands{EntryFile: "{entry_file}/{entry_file}.go", Command: "go run"}, "m", false, "go run m/m.go"},
		{"a placeholder in the entry", Commands{EntryFile: "{entry_file}", Command: "cat"}, "{entry_file}", false, "cat '{entry_file}'"},
		{"an entry for a shell", Commands{EntryFile: "{entry_file}.py", Command: "cat"}, "it's $(reboot); x", false, `cat 'it'\''s $(reboot); x.py'`},
		{"no entry", Commands{EntryFile: "{entry_file}", Command: "cat"}, "", false, "cat ''"},
		{"a line break", Commands{EntryFile: "{entry_file}", Command: "cat"}, "a\nb", false, "cat 'a\nb'"},
	} {
		if got, err := c.commands.CommandLine(c.entry, c.agent); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.says, got, err, c.want)
		}
	}
	for says, c := range map[string]struct {
		commands Commands
		entry    string
	}{
		"no command":    {Commands{EntryFile: "{entry_file}"}, "main"},
		"a NUL byte":    {Commands{EntryFile: "{entry_file}", Command: "cat"}, "a\x00"},
		"blank command": {Commands{EntryFile: "{entry_file}", Command: " \n"}, "main"},
	} {
		if got, err := c.commands.CommandLine(c.entry, false); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: got %q, %v; want an ErrConfig", says, got, err)
		}
	}
}

func TestCommandLine_quoting(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh")
	}
	for _, entry := range []string{"main", "two words", "it's", `"$HOME" \ $(x) ; & | * ? ~ # ! {a,b}`, "a\nb\t", "ä", "~", "-x", "=", "\x01\x7f", ""} {
		line, err := Commands{EntryFile: "{entry_file}", Command: "printf '[%s]'"}.CommandLine(entry, false)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(sh, "-c", line).Output(); err != nil || string(out) != "["+entry+"]" {
			t.Errorf("%q: the shell printed %q, %v", entry, out, err)
		}
	}
}

// The words of a command line are what a person pastes into a shell, and an image chooses some of them.
func TestQuoteAll(t *testing.T) {
	for want, words := range map[string][]string{
		"docker exec -it box sh -l":             {"docker", "exec", "-it", "box", "sh", "-l"},
		"--user 'a;id' '' 'it'\\''s $(x)'":      {"--user", "a;id", "", "it's $(x)"},
		`$'/w\x1b[2J' $'it\'s\n\\\u202e\xff\"'`: {"/w\x1b[2J", "it's\n\\\u202e\xff\""},
	} {
		if got := QuoteAll(words); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
