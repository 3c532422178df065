// Package conformance is the test suite that every sandbox provider must pass. Each promise of the library is one
// subtest, whose name states it. A provider that cannot keep a promise gives the reason and proves what it does instead.
//
// docs/promises.json records which promises each provider of this module keeps, and docs/promises.md summarizes it. The
// suite checks the JSON file, and rewrites both with the test flag -update-promises. Other modules have no such files:
// there the suite only logs the column (go test -v), and Column may be any name.
//
//	conformance.Run(t, conformance.Harness{
//		Column: "mine", Probe: conformance.BuildProbe(t), Groups: []string{"exec", "files"},
//		Users: conformance.Users{Name: "nobody", UID: 65534, GID: 65534},
//		Start: func(t *testing.T) fumehood.Sandbox { ... },
//		Exceptions: conformance.NoUsers("everything is done as one user"),
//	})
//
// The groups are those of the names in docs/promises.json: "exec", "end", "output", "files" and so on. Exceptions of
// several functions such as NoUsers, NoStop and NoRlimits are merged with maps.Copy; those of groups that do not run
// have no effect, and unknown names fail the suite.
//
// The suite runs only the program of package probe, so an image needs no other file.
package conformance

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

// Harness describes a provider to the suite. Column, Start, Probe and Users are required.
type Harness struct {
	// Column names the provider in docs/promises.json: "local", "docker engine debian root".
	Column string
	// Start starts a sandbox. The suite closes it.
	Start func(t *testing.T) fumehood.Sandbox
	// StartKept starts a sandbox that is kept. When t ends, it must remove the sandbox, and fail t if the sandbox no
	// longer exists. It may be nil if Exceptions covers the promises about Stop; see NoStop.
	StartKept func(t *testing.T) fumehood.Sandbox
	// Probe is the absolute path of the probe program within the sandbox; see BuildProbe.
	Probe string
	// Users describes the users of the sandbox. The promises about users need it.
	Users Users
	// Exceptions lists the promises that this provider does not keep, by name.
	Exceptions map[string]Exception
	// Groups limits the run to these groups of promises. A promise's group is the part of its name before the slash.
	// Empty means all groups.
	Groups []string
}

// Users describes users of a sandbox.
type Users struct {
	Name     string // the name of a user other than the one that commands run as by default
	UID, GID int    // the numeric IDs of that user
	Unknown  string // a name that no user has; empty means "nobody-of-that-name"
}

// Exception replaces a promise that a provider does not keep.
type Exception struct {
	// Reason explains why the promise is not kept and what happens instead. It goes into docs/promises.json.
	Reason string
	// Check proves what happens instead: a typed ErrUnsupported, or the documented lesser value.
	Check func(t *testing.T, c *Case)
}

// RootMayAll replaces the promise about permissions where commands run as root and the files are root's.
var RootMayAll = Exception{
	Reason: "root may access every file",
	Check: func(t *testing.T, c *Case) {
		c.Write(t, "secret", "x")
		c.Run(t, "lock", c.Path("secret"))
		if got := c.Read(t, "secret"); got != "x" {
			t.Errorf("got %q", got)
		}
	},
}

// HostLinks replaces the promise about links that lead out of the sandbox, for a provider that has the host's files.
var HostLinks = Exception{
	Reason: "paths are the host's; links reach host files",
	Check: func(t *testing.T, c *Case) {
		for link, secret := range c.HostLinks(t) {
			if got := c.Read(t, link); got != secret {
				t.Errorf("%s: %q", link, got)
			}
		}
	},
}

// AlwaysKept replaces the promise about Stop where sandboxes were opened, which are always kept.
var AlwaysKept = Exception{
	Reason: "opened sandboxes are always kept",
	Check: func(t *testing.T, c *Case) {
		if err := c.Fresh(t).Stop(t.Context()); err != nil {
			t.Error(err)
		}
	},
}

// NoUserNames replaces the promise about named users for an image without them.
var NoUserNames = Exception{
	Reason: "no user names in the image; ErrUserNotFound",
	Check: func(t *testing.T, c *Case) {
		cmd := c.Probe("id")
		cmd.User = "daemon"
		_, err := c.Sandbox.Exec(t.Context(), cmd)
		WantError(t, err, fumehood.ErrUserNotFound)
	},
}

// RestLives returns the exception to the promise about Cmd.KillRest, for a provider that cannot kill the processes that
// a command leaves behind.
func RestLives(reason string) Exception {
	return Exception{Reason: reason, Check: func(t *testing.T, c *Case) {
		cmd := c.Probe("daemon", c.Path("daemon"))
		cmd.KillRest = true
		if res := c.Exec(t, cmd); res.Outcome != fumehood.Exited || !res.Leaked {
			t.Errorf("got %s, Leaked %v", res.Outcome, res.Leaked)
		}
		c.Alive(t, "daemon")
		c.Stop(t, "daemon")
	}}
}

// promise is one subtest. Subtests run in parallel, each in its own directory of the shared sandbox.
type promise struct {
	name  string // "group/promise"
	check func(t *testing.T, c *Case)
	// alone marks a check that starts so many commands at once that it would slow down the others. It runs before them.
	alone bool
}

func promises() []promise {
	var all []promise
	for _, group := range []struct {
		name string
		list []promise
	}{
		{"exec", execPromises},
		{"start", startPromises},
		{"stdin", stdinPromises},
		{"output", outputPromises},
		{"tty", ttyPromises},
		{"end", endPromises},
		{"process", processPromises},
		{"detached", detachedPromises},
		{"rlimits", rlimitPromises},
		{"files", filePromises},
		{"changes", changePromises},
		{"walk", walkPromises},
		{"users", userPromises},
		{"errors", fileErrorPromises},
		{"links", linkPromises},
		{"archives", archivePromises},
		{"sandbox", sandboxPromises},
		{"stop", stopPromises},
	} {
		for _, p := range group.list {
			p.name = group.name + "/" + p.name
			all = append(all, p)
		}
	}
	return all
}

// names returns the names of promises.
func names(all []promise) []string {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	return names
}

// Promises returns the names of a group's promises, for a provider with the same Exception for all of them.
func Promises(group string) []string {
	var names []string
	for _, p := range promises() {
		if strings.HasPrefix(p.name, group+"/") {
			names = append(names, p.name)
		}
	}
	return names
}

// Case is the fixture of one promise: a running sandbox, which it shares with other promises, and its own directory
// in that sandbox.
type Case struct {
	Sandbox fumehood.Sandbox
	Harness Harness
	// Dir is the absolute path of the promise's directory. At first it holds only an empty file named "here".
	Dir string
	// Name is the path of that directory relative to the service's directory.
	Name string
}

// Run checks every promise on the provider that h describes. When all subtests have ended, which is after the caller's
// test function returns, it checks docs/promises.json too.
func Run(t *testing.T, h Harness) {
	all := promises()
	checkHarness(t, h, all)
	if h.Users.Unknown == "" {
		h.Users.Unknown = "nobody-of-that-name"
	}
	if h.StartKept == nil {
		h.StartKept = func(t *testing.T) fumehood.Sandbox {
			t.Fatal("the harness has no StartKept: set it, or add NoStop to Exceptions")
			return nil
		}
	}
	sb := startSandbox(t, h)
	makeDirs(t, sb, len(all))
	ran := &cells{text: map[string]string{}}
	t.Cleanup(func() {
		record(t, h.Column, names(all), ran.text, ran.begun == len(all))
	})
	for _, alone := range []bool{true, false} {
		for i, p := range all {
			group, _, _ := strings.Cut(p.name, "/")
			if p.alone != alone || len(h.Groups) > 0 && !slices.Contains(h.Groups, group) {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				if !alone {
					t.Parallel()
				}
				c := &Case{Sandbox: sb, Harness: h, Name: dirName(i)}
				c.Dir = path.Join(sb.ServiceInfo().Dir, c.Name)
				check, text := p.check, kept
				if w, ok := h.Exceptions[p.name]; ok {
					check, text = w.Check, excepted+w.Reason
				}
				ran.follow(t, p.name, text)
				check(t, c)
			})
		}
	}
}

// cells holds the cells of one column, for the promises that ran and held.
type cells struct {
	mu    sync.Mutex
	begun int
	text  map[string]string // by promise
}

// follow sets the promise's cell when t ends, unless t fails or is skipped.
func (c *cells) follow(t *testing.T, promise, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	t.Cleanup(func() { // runs after the cleanups that the check adds, which can fail t
		c.mu.Lock()
		defer c.mu.Unlock()
		if !t.Failed() && !t.Skipped() {
			c.text[promise] = text
		}
	})
}

func checkHarness(t *testing.T, h Harness, all []promise) {
	t.Helper()
	if h.Column == "" || h.Start == nil || h.Probe == "" {
		t.Fatal("the harness needs Column, Start and Probe")
	}
	known, groups := map[string]bool{}, map[string]bool{}
	for _, p := range all {
		if known[p.name] {
			t.Fatalf("two promises are called %q", p.name)
		}
		known[p.name] = true
		group, _, _ := strings.Cut(p.name, "/")
		groups[group] = true
	}
	for _, group := range h.Groups {
		if !groups[group] {
			t.Errorf("Groups names a group that does not exist: %q", group)
		}
	}
	for name, w := range h.Exceptions {
		if !known[name] {
			t.Errorf("Exceptions names a promise that does not exist: %q", name)
		}
		if w.Reason == "" || w.Check == nil {
			t.Errorf("Exceptions[%q] needs a Reason and a Check", name)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// startSandbox starts a sandbox and closes it when t ends.
func startSandbox(t *testing.T, h Harness) fumehood.Sandbox {
	t.Helper()
	sb := h.Start(t)
	ctx := t.Context()
	t.Cleanup(func() {
		if err := sb.Close(ctx); err != nil { // Close works after ctx has ended
			t.Errorf("close the sandbox: %v", err)
		}
	})
	return sb
}

// Fresh starts another sandbox, for a promise that spoils its sandbox. The sandbox is closed when t ends.
func (c *Case) Fresh(t *testing.T) fumehood.Sandbox {
	t.Helper()
	return startSandbox(t, c.Harness)
}

func dirName(promise int) string { return fmt.Sprintf("promise-%02d", promise) }

// makeDirs creates the directories of all promises with one archive. Where each file takes an exec of the Engine, that
// is much faster than creating them one by one.
func makeDirs(t *testing.T, sb fumehood.Sandbox, promises int) {
	t.Helper()
	var dirs []entry
	for i := range promises {
		dirs = append(dirs, entry{name: dirName(i) + "/", mode: 0o755}, entry{name: dirName(i) + "/here", mode: 0o644})
	}
	if err := sb.Upload(t.Context(), ".", bytes.NewReader(tarOf(t, dirs))); err != nil {
		t.Fatal(err)
	}
}

// Path returns the absolute path of name in the promise's directory.
func (c *Case) Path(name string) string { return c.Dir + "/" + name }

// commandBound is the wall-clock limit of the suite's own commands, so that none hangs.
const commandBound = 5 * time.Minute

// Probe returns a command that runs the probe in the promise's directory.
func (c *Case) Probe(args ...string) fumehood.Cmd {
	return fumehood.Cmd{Args: append([]string{c.Harness.Probe}, args...), Dir: c.Dir, Timeout: commandBound}
}

// Exec runs cmd and returns its result, whatever the outcome. It fails t if there is no result.
func (c *Case) Exec(t *testing.T, cmd fumehood.Cmd) *fumehood.Result {
	t.Helper()
	res, err := c.Sandbox.Exec(t.Context(), cmd)
	if err != nil {
		t.Fatalf("exec %.100q: %v", cmd.Args, err)
	}
	return res
}

// Succeed runs the command, which must exit with 0, and returns its result.
func (c *Case) Succeed(t *testing.T, cmd fumehood.Cmd) *fumehood.Result {
	t.Helper()
	res := c.Exec(t, cmd)
	if !res.Success() {
		t.Fatalf("%.100q: %s, code %d, stderr %.500q", cmd.Args, res.Outcome, res.ExitCode, res.Stderr.Text())
	}
	return res
}

// Run runs the probe, which must exit with 0, and returns its standard output.
func (c *Case) Run(t *testing.T, args ...string) string {
	t.Helper()
	return string(c.Succeed(t, c.Probe(args...)).Stdout.Bytes)
}

// Start starts cmd, and kills it when t ends.
func (c *Case) Start(t *testing.T, cmd fumehood.Cmd) fumehood.Process {
	t.Helper()
	p, err := c.Sandbox.Start(t.Context(), cmd)
	if err != nil {
		t.Fatalf("start %.100q: %v", cmd.Args, err)
	}
	ctx := t.Context()
	t.Cleanup(func() { _ = p.Kill(ctx) }) // an error does not matter: the end of ctx kills the command too
	return p
}

// Write writes a file in the promise's directory.
func (c *Case) Write(t *testing.T, name, content string) {
	t.Helper()
	if err := c.Sandbox.WriteFile(t.Context(), c.Path(name), []byte(content), fumehood.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Read reads a file in the promise's directory.
func (c *Case) Read(t *testing.T, name string) string {
	t.Helper()
	b, err := c.Sandbox.ReadFile(t.Context(), c.Path(name), fumehood.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
