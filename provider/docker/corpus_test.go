package docker_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/composetest"
	"github.com/fumehood/fumehood/test/tier"
)

var updateComposeDocs = flag.Bool("update-compose-docs", false, "write the tables of docs/compose.md again")

// composeFiles is the folder of the Compose files. The native provider starts them too.
const composeFiles = "testdata/compose"

func TestComposeFiles(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	cases := composetest.Cases(t, composeFiles)
	behave := 0
	for name, c := range cases {
		if c.Refused == nil {
			behave++
		}
		t.Run(strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), "/compose"), func(t *testing.T) {
			t.Parallel()
			if c.Refused == nil && c.Fails == nil {
				sb := start(t, p, c.Spec())
				c.Check(t, sb)
				for _, s := range sb.Info().Services {
					if c.Limits {
						checkLimits(t, s)
					}
				}
				return
			}
			sb, err := p.Start(t.Context(), c.Spec())
			if err == nil {
				t.Fatal(errors.Join(errors.New("it was started"), sb.Close(t.Context())))
			}
			for _, want := range append(c.Refused, c.Fails...) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q missing in: %v", want, err)
				}
			}
			if c.Refused != nil && !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("no ErrConfig: %v", err)
			}
		})
	}
	if len(cases) < 40 || behave < 32 {
		t.Errorf("of %d files, %d behave as described", len(cases), behave)
	}
}

// checkLimits compares a container's limits of memory, swap, processes and CPUs, as the Engine reports them.
func checkLimits(t *testing.T, s fumehood.ServiceInfo) {
	t.Helper()
	want := "67108864 67108864 100 500000000"
	if s.Name == "none" {
		want = "134217728 134217728 200 0"
	}
	raw := tier.Program(t, tier.CI, "docker")
	const format = "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}} {{.HostConfig.NanoCpus}}"
	out, err := exec.CommandContext(t.Context(), raw, "inspect", "-f", format, s.Container).Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		t.Errorf("the limits of %s are %s, want %s: %v", s.Name, got, want, err)
	}
}

// TestComposeDocs checks that the tables of docs/compose.md are up to date.
func TestComposeDocs(t *testing.T) {
	var behave, refused strings.Builder
	behave.WriteString("| file | what it shows |\n|---|---|\n")
	refused.WriteString("| file | what is refused |\n|---|---|\n")
	cases := composetest.Cases(t, composeFiles)
	var names []string
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		table := &behave
		if cases[name].Refused != nil {
			table = &refused
		}
		fmt.Fprintf(table, "| `%s` | %s |\n", name, cases[name].Does)
	}
	page := filepath.Join("..", "..", "docs", "compose.md")
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for mark, table := range map[string]string{"behave": behave.String(), "refused": refused.String()} {
		begin, end := "<!-- "+mark+": written by a test -->\n", "<!-- end of "+mark+" -->"
		head, rest, ok := strings.Cut(text, begin)
		_, tail, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no table %s", page, mark)
		}
		text = head + begin + table + end + tail
	}
	if text == string(content) {
		return
	}
	if !*updateComposeDocs {
		t.Fatalf("%s is not up to date: go test ./provider/docker -run TestComposeDocs -update-compose-docs", page)
	}
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil { //nolint:gosec // a page of the documentation
		t.Fatal(err)
	}
}
