package docker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// A process that kills a fork bomb gets a thousandth of the CPU time, unless the whole container is frozen meanwhile.
// Other programs continue afterwards: commands of the same user and of others, and a service's own program.
func TestExec_forkBombNeighbors(t *testing.T) {
	t.Parallel()
	tier.Need(t, tier.All) // it takes the processors from all other tests
	const bomb = "import os\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: pass"
	const counting = "import sys, time\ni = 0\nwhile True: i += 1; open(sys.argv[1], 'w').write(str(i)); time.sleep(0.1)" // starts no further process
	p := newProvider(t, docker.Options{})
	for name, spec := range map[string]fumehood.Spec{
		"guest": {Image: debian, Limits: fumehood.Limits{PIDs: 600}},
		"own program": {Limits: fumehood.Limits{PIDs: 600}, Compose: project(t, `
services: {default: {image: fumehood-test/python, command: [python3, -c, "`+strings.ReplaceAll(counting, "\n", `\n`)+`", /tmp/own]}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sb := start(t, p, spec)
			counters := []string{"/tmp/root", "/tmp/nobody"}
			if spec.Compose != nil {
				counters = append(counters, "/tmp/own")
			}
			for _, user := range []string{"root", "nobody"} {
				if _, err := sb.As(user).Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", counting, "/tmp/" + user}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, user := range []string{"root", "nobody"} {
				began := time.Now()
				res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", bomb}, Timeout: 2 * time.Second, Grace: fumehood.NoGrace, StderrCap: 1000})
				took := time.Since(began)
				if err != nil || res.Outcome != fumehood.TimedOut || res.Leaked {
					t.Fatalf("%s: %+v, %v", user, res, err)
				}
				if took > 60*time.Second { // ten times the promised time
					t.Errorf("%s: it took %v", user, took)
				}
				t.Logf("%s: it took %v", user, took)
				for _, file := range counters {
					text := "old=$(cat " + file + "); for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; [ 0$(cat " + file + ") -gt 0$old ] && echo on && exit; done"
					if got := sh(t, sb, text); got != "on" {
						t.Errorf("%s: %s makes no progress", user, file)
					}
				}
				if left := strings.TrimSpace(sh(t, sb, `grep -l "^State:.T" /proc/[0-9]*/status; true`)); left != "" {
					t.Errorf("%s: stopped processes: %s", user, left)
				}
			}
		})
	}
}
