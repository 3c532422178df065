package docker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

const (
	// guestsOfID is the beginning of a shell script. It sets g to the guests of the users with an ID.
	guestsOfID = `guests() { for p in /proc/[0-9]*; do case "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" in */guest\ serve*) test $(stat -c %u $p) = $1 && echo ${p#/proc/};; esac; done; }
`
	ownProgram = "services: {default: {image: " + debian + ", command: [python3, -c, \"import time\\nwhile True: time.sleep(1)\"]}}"
)

// A process that hinders a guest has broken the sandbox. It takes half a minute to report that a guest does not answer.
func TestExec_guestHindered(t *testing.T) {
	t.Parallel()
	if tier.Of(t) < tier.CI {
		t.Skip("each takes half a minute")
	}
	// The others differ in who is stopped when.
	quicker := []string{"stopped, the program's user", "stopped for a while", "killed, and each that comes"}
	for name, c := range map[string]struct {
		own    bool   // the service runs its own program
		user   string // the user whose guest is hindered
		script string // run by root in the background until the sandbox is removed
		file   bool   // reads a file instead of running a command
	}{
		"stopped":                        {user: "tester", script: "kill -STOP $(guests 1000); echo done"},
		"stopped, beside an own program": {own: true, user: "tester", script: "kill -STOP $(guests 1000); echo done"},
		"stopped, the program's user":    {own: true, script: "sleep 1; echo done; kill -STOP $(guests 0)"},
		"stopped for a while":            {user: "tester", script: "g=$(guests 1000); kill -STOP $g; echo done; sleep 32; kill -CONT $g"},
		"stopped, and a file":            {user: "tester", script: "kill -STOP $(guests 1000); echo done", file: true},
		"killed, and each that comes":    {user: "tester", script: "echo done; while :; do kill -9 $(guests 1000); done 2>/dev/null"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(quicker, name) {
				tier.Need(t, tier.All)
			}
			spec := fumehood.Spec{Image: debian, Limits: fumehood.Limits{PIDs: 1000}}
			if c.own {
				spec = fumehood.Spec{Compose: project(t, ownProgram)}
			}
			sb := start(t, newProvider(t, docker.Options{}), spec)
			if _, err := sb.As(c.user).Stat(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
			by := begun(t, sb, fumehood.Cmd{Args: []string{"sh", "-c", guestsOfID + c.script + "; sleep 1000"}})
			began := time.Now()
			for sure := false; !sure; { // a guest is usually faster than the script that kills it
				if time.Since(began) > 4*time.Minute {
					t.Fatal("the guest was not hindered")
				}
				if c.file {
					_, err := sb.As(c.user).ReadFile(t.Context(), "/etc/passwd", fumehood.ReadOptions{})
					t.Log(err)
					if !errors.Is(err, fumehood.ErrBroken) {
						t.Errorf("a file: %v", err)
					}
					break
				}
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sleep", "0.1"}, User: c.user})
				switch {
				case err != nil:
					t.Log(err)
					if sure = true; !errors.Is(err, fumehood.ErrBroken) {
						t.Errorf("a command: %v", err)
					}
				case res.Outcome == fumehood.Lost:
					t.Log(res.Reason)
					if sure = true; !res.CausedInside {
						t.Errorf("a command: %+v", res)
					}
				default:
					sure = strings.HasPrefix(name, "stopped") && time.Since(began) > time.Minute
				}
			}
			_ = by.Kill(context.WithoutCancel(t.Context()))
		})
	}
}

func TestExec_tracedIsKilled(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	const traced = "import ctypes, os\nctypes.CDLL(None).ptrace(0, 0, 0, 0)\n"
	for name, script := range map[string]string{"stops": "os.kill(os.getpid(), 19)", "executes": "os.execv('/bin/sleep', ['sleep', '1000'])"} {
		for _, user := range []string{"", "tester"} {
			res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", traced + script}, User: user, Timeout: time.Second})
			if err != nil || res.Outcome != fumehood.TimedOut || res.Leaked {
				t.Errorf("who %s, of user %q: %+v, %v", name, user, res, err)
			}
		}
	}
	if got := sh(t, sb, "cat /proc/[0-9]*/cmdline | tr -d '\\0' | grep -c [p]trace || true"); got != "0" {
		t.Errorf("%s are left", got)
	}
}
