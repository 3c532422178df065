package conformance

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

// otherUser is the numeric ID of a user other than that of the services.
const otherUser = "1001"

var keptCommandPromises = []providerPromise{
	{"kept/detached commands go on after close", func(t *testing.T, c *ProviderCase) {
		sb := c.keep(t, c.spec())
		begun := map[string]fumehood.Process{}
		for _, user := range []string{"", otherUser} {
			p := detach(t, sb, user, `echo first; echo warned >&2; while read -r line; do echo "got $line"; done; exit 7`)
			writeLine(t, p, "one")
			awaitText(t, p, "first\ngot one\n")
			begun[user] = p
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, b := c.open(t, sb.Info().Name), c.open(t, sb.Info().Name)
		if n := len(a.Processes()); n != 0 {
			t.Errorf("%d commands are known before the search", n)
		}
		for user, first := range begun {
			if res, err := first.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost {
				t.Errorf("for the process that closed the sandbox: %+v, %v", res, err)
			}
			id := first.Info().ID
			later, other := rejoin(t, a, id), rejoin(t, b, id)
			if info := later.Info(); info.Ended || len(info.Args) != 3 || info.Started.Sub(first.Info().Started).Abs() > time.Minute {
				t.Errorf("%q: it is described as %+v", user, info)
			}
			WantError(t, later.Forget(t.Context()), fumehood.ErrConfig)
			writeLine(t, later, "two")
			awaitText(t, later, "first\ngot one\ngot two\n")
			if err := other.CloseStdin(); err != nil {
				t.Fatal(err)
			}
			for _, p := range []fumehood.Process{later, other, rejoin(t, c.open(t, sb.Info().Name), id)} {
				res := wantCode(t, p, 7)
				wantOutput(t, "stdout", res.Stdout, "first\ngot one\ngot two\n")
				wantOutput(t, "stderr", res.Stderr, "warned\n")
				if got := string(follow(t, p, fumehood.Stdout, 3)); got != "st\ngot one\ngot two\n" {
					t.Errorf("%q: from 3 on came %q", user, got)
				}
			}
			if !rejoin(t, b, id).Info().Ended {
				t.Error("its end is not described")
			}
			if err := later.Forget(t.Context()); err != nil {
				t.Error(err)
			}
			if err := b.RefreshProcesses(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := b.Process(id); err == nil {
				t.Error("it is listed after it was forgotten")
			}
			if err := other.Forget(t.Context()); err != nil {
				t.Errorf("forgotten twice: %v", err)
			}
		}
	}},
	{"kept/commands of all users share their numbers", func(t *testing.T, c *ProviderCase) {
		sb := c.keep(t, c.spec())
		users := []string{otherUser, "", otherUser, "1002"}
		for i, user := range users {
			if id := detach(t, sb, user, `read -r line; echo "$(id -u) got $line"; exit 7`).Info().ID; id != i+1 {
				t.Errorf("%q has number %d, want %d", user, id, i+1)
			}
		}
		for class, cmd := range map[error]fumehood.Cmd{
			fumehood.ErrProgramNotFound: {Args: []string{"/no/such/program"}, User: otherUser, Detach: true},
			fumehood.ErrUserNotFound:    {Args: []string{"true"}, User: "none-of-that-name", Detach: true},
		} {
			_, err := sb.Start(t.Context(), cmd)
			WantError(t, err, class)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		later := c.open(t, sb.Info().Name)
		if got := len(numbers(t, later)); got != len(users) {
			t.Fatalf("%d commands are listed", got)
		}
		for i, user := range users {
			p := rejoin(t, later, i+1)
			writeLine(t, p, fmt.Sprint(i))
			if user == "" {
				user = "0"
			}
			wantOutput(t, "stdout", wantCode(t, p, 7).Stdout, fmt.Sprintf("%s got %d\n", user, i))
		}
		for _, id := range []int{1, 4} {
			if err := rejoin(t, later, id).Forget(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := fmt.Sprint(numbers(t, c.open(t, sb.Info().Name))); got != "[2 3]" {
			t.Errorf("listed after two were forgotten: %s", got)
		}
		if id := detach(t, later, "1002", "true").Info().ID; id <= len(users) {
			t.Errorf("the next one has number %d", id)
		}
	}},
	{"kept/kill by another process is seen by all", func(t *testing.T, c *ProviderCase) {
		sb := c.keep(t, c.spec())
		a, b := c.open(t, sb.Info().Name), c.open(t, sb.Info().Name)
		for _, way := range []struct {
			user   string
			signal int // 0 means Kill
			ends   int
		}{{"", 0, 15}, {"", 9, 9}, {otherUser, 0, 15}, {otherUser, 9, 9}} {
			p := detach(t, sb, way.user, "exec sleep 1000")
			id := p.Info().ID
			waits, kills := rejoin(t, a, id), rejoin(t, b, id)
			var err error
			if way.signal == 0 {
				err = kills.Kill(t.Context())
			} else {
				err = kills.Signal(t.Context(), way.signal)
			}
			if err != nil {
				t.Fatal(err)
			}
			for who, p := range map[string]fumehood.Process{"starts": p, "waits": waits, "kills": kills, "comes late": rejoin(t, c.open(t, sb.Info().Name), id)} {
				res, err := p.Wait(t.Context())
				if err != nil || res.Outcome != fumehood.Signaled || res.Signal != way.ends || res.Reason != "killed by the caller" || res.Leaked || res.CausedInside {
					t.Errorf("for who %s it: %+v, %v", who, res, err)
				}
			}
		}
	}},
	{"kept/signals, kill, timeouts work after close", func(t *testing.T, c *ProviderCase) {
		sb := c.keep(t, c.spec())
		trap := detach(t, sb, "", `trap 'echo caught; exit 4' TERM; echo ready; while :; do sleep 0.05; done`).Info().ID
		tree := detach(t, sb, "", `setsid sleep 1234 & sleep 1234 & echo ready; wait`).Info().ID
		cmd := shell("exec sleep 1234")
		cmd.Detach, cmd.Timeout = true, 2*time.Second
		timed, err := sb.Start(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		later := c.open(t, sb.Info().Name)
		p := rejoin(t, later, trap)
		awaitText(t, p, "ready\n")
		if err := p.Signal(t.Context(), 15); err != nil {
			t.Fatal(err)
		}
		wantOutput(t, "stdout", wantCode(t, p, 4).Stdout, "ready\ncaught\n")
		p = rejoin(t, later, tree)
		awaitText(t, p, "ready\n")
		if res := kill(t, p); res.Leaked {
			t.Errorf("killed: %+v", res)
		}
		for _, sb := range []fumehood.Sandbox{later, c.open(t, sb.Info().Name)} {
			if res, err := rejoin(t, sb, timed.Info().ID).Wait(t.Context()); err != nil || res.Outcome != fumehood.TimedOut || res.ExitCode != -1 || res.Duration < cmd.Timeout {
				t.Errorf("timeout: %+v, %v", res, err)
			}
		}
		if got := sh(t, later, "ps | grep -c '[s]leep 1234' || true"); got != "0" {
			t.Errorf("%s of their descendants are alive", got)
		}
	}},
	{"kept/plain commands end with their connection", func(t *testing.T, c *ProviderCase) {
		sb := c.keep(t, c.spec())
		last := c.open(t, sb.Info().Name)
		hosts := []fumehood.Sandbox{sb, c.open(t, sb.Info().Name), c.open(t, sb.Info().Name)}
		var pids []string
		for _, host := range hosts {
			p, err := host.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo $$; exec sleep 1000"}})
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pidOf(t, p))
		}
		pids = append(pids, pidOf(t, detach(t, hosts[1], "", "echo $$; exec sleep 1000")))
		for i, host := range hosts {
			if err := host.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := strings.Join(pids[i+1:], "\n")
			Eventually(t, "the connection's command has ended, and no other", func() bool {
				return sh(t, last, "for p in "+strings.Join(pids, " ")+"; do kill -0 $p 2>/dev/null && echo $p; done; true") == want
			})
		}
	}},
	{"kept/many may open it and start commands at once", func(t *testing.T, c *ProviderCase) {
		name := c.keepClosed(t, c.spec())
		const hosts, users = 4, 3
		var all sync.WaitGroup
		for range hosts {
			sb := c.open(t, name)
			for user := range users {
				all.Go(func() {
					uid := fmt.Sprint(1000 + user)
					p, err := sb.As(uid).Start(t.Context(), fumehood.Cmd{Args: []string{"id", "-u"}, Detach: true})
					if err != nil {
						t.Error(err)
						return
					}
					if res, err := p.Wait(t.Context()); err != nil || res.Stdout.Text() != uid+"\n" {
						t.Errorf("%+v, %v", res, err)
					}
				})
			}
		}
		all.Wait()
		if n := len(numbers(t, c.open(t, name))); n != hosts*users {
			t.Errorf("%d commands are listed", n)
		}
		if c.Guests == nil {
			t.Error("the harness has no Guests")
		} else if n := c.Guests(t, name); n != 1+users {
			t.Errorf("%d guests, want one for the service's user and each other one", n)
		}
	}},
	{"kept/write to an ended command is ErrUnavailable", func(t *testing.T, c *ProviderCase) {
		sb := c.keep(t, c.spec())
		for _, script := range []string{"true", "read -r line"} {
			p := detach(t, sb, "", script)
			if script == "true" {
				wantCode(t, p, 0)
			}
			later := rejoin(t, c.open(t, sb.Info().Name), p.Info().ID)
			var err error
			soon(t, "a write returns an error", func() {
				for err == nil { // the guest drops what arrives before it reports the end
					_, err = io.WriteString(later, strings.Repeat("x\n", 4<<20))
				}
			})
			WantError(t, err, fumehood.ErrUnavailable)
		}
	}},
}

// detach starts a detached script as a user; empty means the service's own.
func detach(t *testing.T, s fumehood.Service, user, script string) fumehood.Process {
	t.Helper()
	p, err := s.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, User: user, Detach: true, StdinPipe: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rejoin returns a detached command that another process has started.
func rejoin(t *testing.T, s fumehood.Service, id int) fumehood.Process {
	t.Helper()
	if err := s.RefreshProcesses(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := s.Process(id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// numbers returns the IDs of the service's detached commands.
func numbers(t *testing.T, s fumehood.Service) (ids []int) {
	t.Helper()
	if err := s.RefreshProcesses(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Processes() {
		ids = append(ids, p.Info().ID)
	}
	return ids
}

func writeLine(t *testing.T, p fumehood.Process, line string) {
	t.Helper()
	if _, err := io.WriteString(p, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// awaitText waits until the program has printed a text, and nothing else.
func awaitText(t *testing.T, p fumehood.Process, want string) {
	t.Helper()
	got := ""
	for chunk, err := range p.Follow(t.Context(), fumehood.Stdout, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if got += string(chunk.Data); len(got) >= len(want) {
			break
		}
	}
	if got != want {
		t.Fatalf("the program has printed %q, want %q", got, want)
	}
}

// pidOf returns the process ID that the program prints as its first line.
func pidOf(t *testing.T, p fumehood.Process) string {
	t.Helper()
	for chunk, err := range p.Follow(t.Context(), fumehood.Stdout, 0) {
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(chunk.Data))
	}
	t.Fatal("the command ended without output")
	return ""
}
