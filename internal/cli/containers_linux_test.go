package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/testimages"
	"github.com/fumehood/fumehood/test/tier"
)

// causes are the beginnings of messages about what docs/cli.md says is missing in a container.
var causes = map[string]string{
	"seccomp": "a seccomp filter forbids the system call", "`/proc`": "is hidden", "SETFCAP": "root lacks the capability SETFCAP",
}

// Each row of the table in docs/cli.md about containers must be true: sandboxes work, or the error names exactly what is
// missing.
func TestNative_inContainers(t *testing.T) {
	t.Parallel()
	dockertest.Engine(t)
	client, err := exec.LookPath("docker")
	if err != nil {
		tier.Missing(t, tier.CI, err)
	}
	docs, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(docs), "\n#### In a container\n")
	section, _, _ = strings.Cut(section, "\n#### ")
	rows := regexp.MustCompile("(?m)^\\| (root|another) \\| (?:none|`([^`]*)`) \\| .* \\| (no|work)(.*) \\|$").FindAllStringSubmatch(section, -1)
	if len(rows) != 10 {
		t.Fatalf("%d rows", len(rows))
	}
	program := buildProgram(t, t.TempDir())
	runsc, err := filepath.Abs("../../bin/runsc") // scripts/ensure-runsc builds it
	if _, missing := os.Stat(runsc); err != nil || missing != nil {
		runsc = ""
	}
	for _, row := range rows {
		user, options, works, missing := row[1], strings.Fields(row[2]), row[3] == "work", row[4]
		t.Run(user+" "+row[2], func(t *testing.T) {
			t.Parallel()
			try := func(volumes []string, flags ...string) (string, error) {
				args := append([]string{"run", "--rm", "--volume", program + ":/fumehood:ro", "--volume", testimages.Archive(t, "fumehood-test/busybox") + ":/image.tar:ro", "--env", "HOME=/tmp/home"}, options...)
				args = append(args, volumes...)
				if user == "another" {
					args = append(args, "--user", "1000")
				}
				args = append(args, "fumehood-test/busybox", "/fumehood", "--provider", "native", "run", "--image", "docker-archive:/image.tar")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				out, err := exec.CommandContext(ctx, client, append(append(args, flags...), "--", "echo", "it works")...).CombinedOutput() //nolint:gosec // options of the docs
				return string(out), err
			}
			text, err := try(nil)
			if strings.Contains(text, "OCI runtime create failed") {
				t.Skipf("this machine lacks what the container needs: %s", text) // as machines without CAP_SYS_RESOURCE for --privileged
			}
			if works != (err == nil) || works && !strings.Contains(text, "it works\n") {
				t.Fatalf("%v: %s", err, text)
			}
			for name, message := range causes {
				if strings.Contains(text, message) != (!works && strings.Contains(missing, name)) {
					t.Errorf("%s: got %s", name, text)
				}
			}
			if strings.Contains(missing, "those of `--runtime runsc` work") && runsc != "" {
				if text, err := try([]string{"--volume", runsc + ":/runsc:ro"}, "--runtime", "/runsc"); err != nil || !strings.Contains(text, "it works\n") {
					t.Errorf("by runsc: %v: %s", err, text)
				}
			}
		})
	}
}
