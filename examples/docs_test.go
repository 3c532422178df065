package examples

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var updateDocs = flag.Bool("update-docs", false, "rewrite the output of commands in README.md, the tutorial and the how-tos")

// fence matches a fenced block: its language, its file name if it has one, and its text.
var fence = regexp.MustCompile("(?s)```([a-z]+)(?: ([A-Za-z./]+))?\n(.*?)```\n")

// TestDocs runs the pages that show commands. A block ```LANGUAGE NAME is written to the file NAME. In a block ```console, what
// follows "$ " is run by sh, and the lines below are its output, where "..." stands for any lines. Files and commands
// of a page share a folder.
func TestDocs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/howto/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md", "../docs/tutorial.md") {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			needDocker(t)
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			dir, env := t.TempDir(), append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), sharedSecret(t), "FUMEHOOD_LOG_LEVEL=error")
			updated := fence.ReplaceAllStringFunc(string(text), func(block string) string {
				parts := fence.FindStringSubmatch(block)
				language, name, content := parts[1], parts[2], parts[3]
				switch {
				case name != "":
					writeFile(t, filepath.Join(dir, name), strings.ReplaceAll(content, documented, image))
				case language == "console":
					return "```console\n" + runConsole(t, dir, env, content) + "```\n"
				}
				return block
			})
			if *updateDocs && updated != string(text) {
				if err := os.WriteFile(page, []byte(updated), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// documented is the image that the pages name, which needs a registry.
const documented = "python:3.12-slim"

// runConsole runs the commands of a block, compares their outputs, and returns the block with the outputs that they had.
func runConsole(t *testing.T, dir string, env []string, content string) string {
	t.Helper()
	var updated strings.Builder
	for command := range strings.SplitSeq(strings.TrimPrefix(content, "$ "), "\n$ ") {
		line, want, _ := strings.Cut(strings.TrimSuffix(command, "\n"), "\n")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line, documented, image))
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		got := progress.ReplaceAllString(strings.ReplaceAll(string(out), image, documented), "")
		got = strings.TrimSuffix(got, "\n")
		keep := elided.MatchString(want) // such a block is updated by hand
		if !matches(got, want) && (keep || !*updateDocs) {
			t.Errorf("%s: the page shows\n%s\nand it printed\n%s\n(go test ./examples -run TestDocs -update-docs)", line, want, got)
		}
		if !matches(got, want) && !keep {
			want = got
		}
		updated.WriteString("$ " + line + "\n")
		if want != "" {
			updated.WriteString(want + "\n")
		}
	}
	return updated.String()
}

// progress matches the lines that a slow machine prints and a fast one does not.
var progress = regexp.MustCompile(`(?m)^fumehood: \d+/\d+ done.*\n`)

// variable matches what differs between two runs: names, times, durations and shares of time.
var variable = regexp.MustCompile(`\d{8}-\d{6}-[a-z-]+-[a-z2-7]{5}\b|\bfumehood-(?:[a-z-]+-)?[a-z2-7]{12}\b|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|` +
	`\d+(?:\.\d+)?(?:ms|s| s)\b|(?m:^time: .*$)|(?m: +\d+\.\d\d$)`)

// elided is a line that stands for any lines.
var elided = regexp.MustCompile(`(?m)^\.\.\.$`)

// matches compares outputs, but for what is variable and for lines that "..." stands for.
func matches(got, want string) bool {
	got, want = variable.ReplaceAllString(got, "#"), variable.ReplaceAllString(want, "#")
	var lines []string
	for _, part := range elided.Split(want, -1) {
		lines = append(lines, regexp.QuoteMeta(part))
	}
	pattern := strings.Join(lines, "(?s:.*)")
	return regexp.MustCompile(`\A` + pattern + `\n?\z`).MatchString(got + "\n")
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
