package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/session"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/test/dockertest"
	"github.com/fumehood/fumehood/test/tier"
)

// engine calls the Engine's API through its socket, as the docker CLI does.
func engine(t *testing.T, method, path string, into any) int {
	t.Helper()
	socket := dockertest.Socket(t, dockertest.Engine(t))
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, "http://docker"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && into != nil && res.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

type container struct {
	State  struct{ Status string }
	Config struct {
		User   string
		Labels map[string]string
	}
	HostConfig struct {
		NetworkMode string
		Binds       []string
		Mounts      []struct {
			Source, Target string
			ReadOnly       bool
		}
	}
}

func name(t *testing.T, r *session.Runtime) string {
	t.Helper()
	return r.Service().ServiceInfo().Container
}

// inspect returns false if the container does not exist.
func inspect(t *testing.T, name string) (c container, there bool) {
	t.Helper()
	return c, engine(t, http.MethodGet, "/containers/"+name+"/json", &c) == http.StatusOK
}

// The workspace and copies of its parts are the session's own. Other writable mounts are logged.
func TestSpawn_writableMountsLogged(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	env := p.environment(t, "  extra_mounts: {data: '/data:rw'}")
	s := p.open(t, env, session.Agent, map[string]string{"data/file": ""})
	execute(t, spawn(t, s, session.SpawnOptions{}), sh("touch /data/new /workspace/new"))
	if log := p.log.String(); strings.Contains(log, "can write to the host") {
		t.Errorf("the log says %q", log)
	}
	other := t.TempDir()
	spawn(t, s, session.SpawnOptions{Mounts: spec.Mounts{{Host: other, Container: "/other", Writable: true}}})
	if log := p.log.String(); strings.Count(log, "can write to the host") != 1 || !strings.Contains(log, other) {
		t.Errorf("the log says %q", log)
	}
}

func TestRuntime_containerRemoved(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	s := p.open(t, p.environment(t), session.Agent, nil)
	for how, end := range map[string]func(*session.Runtime) error{
		"Kill":    func(r *session.Runtime) error { return r.Kill(t.Context()) },
		"Cleanup": func(r *session.Runtime) error { return r.Cleanup(t.Context()) },
	} {
		r := spawn(t, s, session.SpawnOptions{})
		if c, there := inspect(t, name(t, r)); !there || c.State.Status != "running" || c.HostConfig.NetworkMode != "none" {
			t.Errorf("%s: %+v", how, c)
		}
		if err := end(r); err != nil {
			t.Error(err)
		}
		if _, there := inspect(t, name(t, r)); there {
			t.Errorf("after %s the container still exists", how)
		}
	}
	r := spawn(t, s, session.SpawnOptions{})
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, there := inspect(t, name(t, r)); there {
		t.Error("after Close the container still exists")
	}
}

func TestRuntime_containerDead(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	s := p.open(t, p.environment(t, `setup: {commands: ["echo setup"]}`), session.Agent, nil)
	r := spawn(t, s, session.SpawnOptions{})
	engine(t, http.MethodPost, "/containers/"+name(t, r)+"/kill", nil)
	for range 2 {
		var typed *fumehood.Error
		if _, err := r.Execute(t.Context(), sh("true")); !errors.Is(err, fumehood.ErrUnavailable) || !errors.As(err, &typed) {
			t.Errorf("%v", err)
		}
	}
	if c, _ := inspect(t, name(t, r)); c.State.Status != "exited" {
		t.Errorf("container: %+v", c)
	}
	if err := r.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRuntime_containerKept(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	env := p.environment(t, "  keep_container_after_clean: true", "  binary: podman")
	s := p.open(t, env, session.Agent, map[string]string{"a": "kept"})
	r := spawn(t, s, session.SpawnOptions{})
	t.Cleanup(func() {
		kept := strings.TrimSuffix(name(t, r), "-default-1")
		if _, err := p.provider.(*docker.Provider).Cleanup(context.WithoutCancel(t.Context()), provider.CleanupOptions{Names: []string{kept}}); err != nil {
			t.Error(err)
		}
	})
	execute(t, r, sh("echo x > b"))
	conn, err := r.Connection(t.Context())
	if err != nil || conn.Shell[0] != "podman" {
		t.Errorf("%v, %v", conn, err)
	}
	for range 2 {
		if err := r.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c, there := inspect(t, name(t, r))
	if !there || c.State.Status != "exited" || c.Config.Labels["fumehood.kept"] != "true" {
		t.Errorf("%v %+v", there, c)
	}
	if text := p.log.String(); !strings.Contains(text, "podman start "+name(t, r)+" && podman exec") {
		t.Errorf("the log does not show how to start the container: %s", text)
	}
	if res, err := s.Exec(t.Context(), session.SpawnOptions{}, sh("cat b")); err != nil || res.Stdout.Text() != "x\n" { // the container is gone afterwards
		t.Errorf("%v, %v", res, err)
	}
	killed := spawn(t, s, session.SpawnOptions{})
	if err := killed.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if _, there := inspect(t, name(t, killed)); there {
		t.Error("a killed container is kept")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if engine(t, http.MethodPost, "/containers/"+name(t, r)+"/start", nil); true {
		if c, _ := inspect(t, name(t, r)); c.State.Status != "running" {
			t.Errorf("the kept container cannot be started: %+v", c)
		}
	}
	if left, err := os.ReadFile(filepath.Join(s.Workspace(), "b")); err != nil || string(left) != "x\n" {
		t.Errorf("workspace of the kept container: %q, %v", left, err)
	}
}

func TestSpawn_mounts(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	dir := folder(t, map[string]string{"one/f": "one", "two/f": "two"})
	env := p.environment(t, "  extra_mounts: {"+dir+"/one: /app/config, fixtures: {bind: /fixtures, mode: rw}}")
	files := map[string]string{"fixtures/f": "fixture"}
	s := p.open(t, env, session.Agent, files)
	r := spawn(t, s, session.SpawnOptions{Mounts: spec.Mounts{{Host: dir + "/two", Container: "/app/config"}}})
	if res := execute(t, r, sh("cat /app/config/f /fixtures/f; echo > /app/config/f; echo new > /fixtures/f; cat fixtures/f")); res.Stdout.Text() != "twofixturefixture" || !strings.Contains(res.Stderr.Text(), "Read-only") {
		t.Errorf("%q", outputs(res))
	}
	for name, m := range map[string]spec.Mounts{
		"below":   {{Host: dir, Container: "/workspace/x"}},
		"missing": {{Host: dir + "/nope", Container: "/x"}},
	} {
		if _, err := s.Spawn(t.Context(), session.SpawnOptions{Mounts: m}); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(dir + "/nope"); err == nil {
		t.Error("a missing host path was created")
	}
}

func TestSession_Spawn(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	dir := folder(t, map[string]string{"f": "content"})
	for name, tt := range map[string]struct {
		extra string
		spawn spec.Mounts
	}{
		"spec": {extra: "/etc: /x"}, "outside": {extra: dir + ": /x"}, "writable": {extra: "'.': '/x:rw'"}, "spawn": {spawn: spec.Mounts{{Host: "/etc", Container: "/x"}}},
	} {
		t.Run("mount/"+name, func(t *testing.T) {
			env := p.environment(t, "  extra_mounts: {"+tt.extra+"}", "  mount_workspace: "+strconv.FormatBool(name != "writable"))
			s := p.open(t, env, session.Agent, nil)
			if _, err := s.Spawn(t.Context(), session.SpawnOptions{Mounts: tt.spawn}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "not safe") {
				t.Errorf("got %v", err)
			}
		})
	}
	env := p.environment(t, "  extra_mounts: {"+dir+": /x, /etc: /y}")
	env.AllowUnsafe = true
	s := p.open(t, env, session.Agent, nil)
	if res := execute(t, spawn(t, s, session.SpawnOptions{}), sh("cat /x/f; ls /y/passwd")); res.Stdout.Text() != "content/y/passwd\n" {
		t.Errorf("%q", outputs(res))
	}
	for _, say := range []string{dir + " is not safe, but allowed", "path=/etc"} {
		if !strings.Contains(p.log.String(), say) {
			t.Errorf("log without %q: %s", say, p.log)
		}
	}
	read := p.environment(t, "  extra_mounts: {"+dir+": /x}")
	read.AllowRead = []string{dir}
	if res := execute(t, spawn(t, p.open(t, read, session.Agent, nil), session.SpawnOptions{}), sh("cat /x/f")); res.Stdout.Text() != "content" {
		t.Errorf("%q", outputs(res))
	}
}

func TestSpawn_ports(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	s := p.open(t, p.environment(t, "  network: bridge", "  ports: {0: 80}"), session.Agent, nil)
	r := spawn(t, s, session.SpawnOptions{Ports: spec.Ports{{Container: 8000}}})
	conn, err := r.Connection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var inside []int
	for _, port := range conn.Ports {
		if port.Host == 0 {
			t.Errorf("%+v", port)
		}
		inside = append(inside, port.Container)
	}
	if slices.Sort(inside); !slices.Equal(inside, []int{80, 8000}) {
		t.Errorf("%v", inside)
	}
	none := p.open(t, p.environment(t), session.Agent, nil)
	if _, err := none.Spawn(t.Context(), session.SpawnOptions{Ports: spec.Ports{{Container: 80}}}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "network: bridge") {
		t.Errorf("%v", err)
	}
	hosts := p.environment(t, "  network: host", "  ports: {0: 80}")
	if _, err := p.open(t, hosts, session.Agent, nil).Spawn(t.Context(), session.SpawnOptions{}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "docker.network: host") {
		t.Errorf("a spec file gets the host's network: %v", err)
	}
	hosts.AllowUnsafe = true
	host := p.open(t, hosts, session.Agent, nil)
	for range 2 {
		r := spawn(t, host, session.SpawnOptions{})
		if conn, err := r.Connection(t.Context()); err != nil || len(conn.Ports) > 0 {
			t.Errorf("%v, %v", conn, err)
		}
	}
	if text := p.log.String(); strings.Count(text, "network of this machine") != 1 || strings.Count(text, "the ports are ignored") != 1 {
		t.Errorf("not logged exactly once: %s", text)
	}
}

func TestExecute_user(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind       session.Kind
		yaml, huid string
		spawn      string
		want       string
	}{
		{session.Agent, "", "", "", "0:0"},
		{session.Agent, "", "1234", "", "0:0"},
		{session.Agent, `  user: "1000:1001"`, "", "", "1000:1001"},
		{session.Agent, `  user: "1000:1001"`, "", "7:8", "7:8"},
		{session.Evaluation, "", "1234", "", "1234:1234"},
		{session.Evaluation, `  user: "1000:1001"`, "1234", "", "1000:1001"},
		{session.Evaluation, "", "", "", "0:0"}, // the user of this test
	} {
		t.Run(fmt.Sprintf("%s %s huid %s spawn %s", c.kind, c.yaml, c.huid, c.spawn), func(t *testing.T) {
			t.Parallel()
			p := inDocker(t)
			s := p.open(t, p.environment(t, c.yaml), c.kind, map[string]string{"d/a": "1"}, func(o *session.Options) { o.HUID, o.HGID = c.huid, c.huid })
			r := spawn(t, s, session.SpawnOptions{User: c.spawn})
			if res := execute(t, r, sh("echo $(id -u):$(id -g); echo 2 >> d/a && touch new && cat d/a")); res.Stdout.Text() != c.want+"\n12\n" {
				t.Errorf("got %q, want %s", outputs(res), c.want)
			}
		})
	}
}

func TestExecute_withoutBash(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	s := p.open(t, p.environment(t, `setup: {commands: ["cd /tmp; export A=1"]}`), session.Agent, nil)
	r := spawn(t, s, session.SpawnOptions{Image: "fumehood-test/busybox"})
	for range 2 {
		if res := execute(t, r, sh("pwd; echo $A; which bash")); res.Stdout.Text() != "/tmp\n1\n" {
			t.Errorf("%q", outputs(res))
		}
	}
	none := spawn(t, s, session.SpawnOptions{Image: "fumehood-test/static"})
	if _, err := none.Execute(t.Context(), sh("true")); !errors.Is(err, fumehood.ErrProgramNotFound) {
		t.Errorf("without any shell: got %v", err)
	}
}

// A command of which a child ran out of memory, also if it then reached its time limit.
func TestExecute_memoryOfChildren(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	for name, more := range map[string]string{"plain": "", "setup": `, setup: {commands: ["export A=1"]}`} {
		s := p.open(t, p.environment(t, `limits: {memory: 32MiB}`+strings.ReplaceAll(more, ", ", "\n")), session.Agent, nil)
		r := spawn(t, s, session.SpawnOptions{Image: "fumehood-test/busybox"})
		if res := execute(t, r, sh("tail /dev/zero; exit 3")); res.Outcome != fumehood.OutOfMemory || res.ExitCode != 3 || res.TimedOut() || !strings.Contains(res.Reason, "exited with code 3") {
			t.Errorf("%s: %s, code %d, %s", name, res.Outcome, res.ExitCode, res.Reason)
		}
		late := sh("tail /dev/zero; sleep 60")
		late.Timeout = 5 * time.Second
		if res := execute(t, r, late); res.Outcome != fumehood.OutOfMemory || res.ExitCode != -1 || !res.TimedOut() || !strings.Contains(res.Reason, "killed at its timeout") {
			t.Errorf("%s, late: %s, code %d, %s", name, res.Outcome, res.ExitCode, res.Reason)
		}
	}
}

// A command that kills its supervisor is lost by its own code.
func TestExecute_supervisorKilled(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	r := spawn(t, p.open(t, p.environment(t), session.Agent, nil), session.SpawnOptions{})
	if res := execute(t, r, sh("kill -9 -1")); res.Outcome != fumehood.Lost || !res.CausedInside {
		t.Errorf("%s, caused inside %t: %s", res.Outcome, res.CausedInside, res.Reason)
	}
	if res := execute(t, r, sh("echo again")); res.Stdout.Text() != "again\n" || res.CausedInside {
		t.Errorf("%q, caused inside %t", outputs(res), res.CausedInside)
	}
}

// A limit of processor time, with and without a setup.
func TestExecute_cpuTime(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	for name, more := range map[string]string{"plain": "", "setup": `setup: {commands: ["export A=1"]}`} {
		s := p.open(t, p.environment(t, more), session.Agent, nil)
		r := spawn(t, s, session.SpawnOptions{Image: "fumehood-test/busybox"})
		busy := sh("(while :; do :; done) & while :; do :; done")
		busy.CPUTime, busy.Timeout = 300*time.Millisecond, time.Minute
		if res := execute(t, r, busy); res.Outcome != fumehood.CPUTimeExceeded || res.ExitCode != -1 || res.TimedOut() || !strings.Contains(res.Reason, "of processor time") {
			t.Errorf("%s: %s, code %d, %s", name, res.Outcome, res.ExitCode, res.Reason)
		}
		if res := execute(t, r, sh("exit 3")); res.Outcome != fumehood.Exited || res.ExitCode != 3 {
			t.Errorf("%s, without a limit: %s, code %d", name, res.Outcome, res.ExitCode)
		}
	}
}

func TestExecute_setupInBash(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	for setup, want := range map[string]string{"": "bash\n/tmp:\n\n/workspace:\n", ", login_shell: true": "bash\nlogin\n/tmp:\n\n/workspace:\n"} {
		s := p.open(t, p.environment(t, `setup: {commands: ["true"]`+setup+"}"), session.Agent, nil)
		r := spawn(t, s, session.SpawnOptions{})
		if res := execute(t, r, sh("basename $BASH; shopt -q login_shell && echo login; ls -A /workspace /tmp")); res.Stdout.Text() != want {
			t.Errorf("%q", outputs(res))
		}
	}
	if _, err := session.Open(t.Context(), session.Options{
		Provider: p.provider, Kind: session.Evaluation, Workspace: t.TempDir(), Dir: p.state, Environment: p.environment(t, "setup: {login_shell: true}"),
	}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "setup.login_shell is not for evaluations") {
		t.Errorf("%v", err)
	}
}

// The submission cannot choose what runs before the command of an evaluation.
func TestExecute_startupFiles(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	forged := "echo forged; exit 0\n"
	files := map[string]string{".bash_profile": forged, ".bash_login": forged, ".profile": forged, ".bashrc": forged, ".pythonrc": forged}
	for name, c := range map[string]struct {
		yaml string
		env  map[string]string
		want string
	}{
		"inside":     {"", nil, "setup|/tmp /image:/bin\n"},
		"set":        {"", map[string]string{"HOME": "/root", "PATH": "/call:/bin"}, "setup|/root /call:/bin\n"},
		"no_bash":    {"busybox", nil, "setup|/tmp /image:/bin\n"},
		"no_set-up":  {"-", nil, "|/tmp /image:/bin\n"},
		"of_another": {"\n  user: '1234:1234'", nil, "setup|/ /image:/bin\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup, image := `setup: {eval_commands: ["printf setup"]}`, ""
			switch c.yaml {
			case "-":
				c.yaml, setup = "", ""
			case "busybox":
				c.yaml, image = "", "fumehood-test/busybox"
			}
			env := p.environment(t, "  workdir: /root"+c.yaml, "environment: {env: {PATH: '/image:/bin'}}", setup)
			r := spawn(t, p.open(t, env, session.Evaluation, files), session.SpawnOptions{Image: image})
			res := execute(t, r, session.ExecuteOptions{Command: "echo $HOME $PATH", Env: c.env})
			if got := res.SetupStdout.Text() + "|" + res.Stdout.Text(); got != c.want || res.ExitCode != 0 {
				t.Errorf("%q", outputs(res))
			}
		})
	}
}

func TestSession_uploadedWorkspace(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	for _, user := range []string{"", "\n  user: '1000:1000'"} {
		env := p.environment(t, "  mount_workspace: false"+user)
		s := p.open(t, env, session.Agent, map[string]string{"d/a": "1"})
		r := spawn(t, s, session.SpawnOptions{})
		if c, _ := inspect(t, name(t, r)); slices.ContainsFunc(c.HostConfig.Mounts, func(m struct {
			Source, Target string
			ReadOnly       bool
		},
		) bool {
			return m.Target == "/workspace"
		}) {
			t.Errorf("the workspace is mounted: %+v", c.HostConfig)
		}
		execute(t, r, sh("echo 2 >> d/a; echo n > new; mkfifo pipe; ln -s /etc/passwd link"))
		if got := told(finish(t, s).Changes); got != "changed d/a, added link, added new" {
			t.Errorf("user %q: %s", user, got)
		}
		execute(t, r, sh("rm -r d; touch more"))
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if res := execute(t, r, sh("cat d/a; ls | tr '\\n' ' '; echo last > new")); res.Stdout.Text() != "12\nd link new " {
			t.Errorf("after Reset: %q", outputs(res))
		}
		if err := r.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
		if files, err := s.ReadFiles(t.Context(), "new"); err != nil || string(files["new"]) != "last\n" {
			t.Errorf("after Cleanup: %q, %v", files, err)
		}
	}
}

// A user who puts a link in the place of the workspace does not lead root's changes elsewhere.
func TestSession_Reset_linkedWorkspace(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	env := p.environment(t, "  mount_workspace: false", "  workdir: /home/tester/app", "  user: '1000:1000'")
	s := p.open(t, env, session.Agent, map[string]string{"a": "1"})
	r := spawn(t, s, session.SpawnOptions{})
	execute(t, r, sh("touch b; cd /; mv /home/tester/app /home/tester/old && ln -s /etc /home/tester/app"))
	if err := s.Reset(t.Context()); !errors.Is(err, fumehood.ErrPermission) {
		t.Errorf("Reset: %v", err)
	}
	for name, want := range map[string]error{"/etc/passwd": nil, "/etc/a": fumehood.ErrNotFound} {
		if _, err := r.Service().Stat(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	execute(t, r, sh("cd /; rm /home/tester/app && mv /home/tester/old /home/tester/app"))
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := execute(t, r, sh("ls; stat -c %u a")); res.Stdout.Text() != "a\n1000\n" {
		t.Errorf("after Reset: %q", outputs(res))
	}
}

// A user who puts a link above the workspace does not lead root's reads elsewhere.
func TestSession_fetch_linkedWorkspace(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	env := p.environment(t, "  mount_workspace: false", "  workdir: /home/tester/sub/app", "  user: '1000:1000'")
	s := p.open(t, env, session.Agent, map[string]string{"a": "1"})
	r := spawn(t, s, session.SpawnOptions{})
	if err := r.Service().As("0").WriteFile(t.Context(), "/srv/sub/app/secret", []byte("root's"), fumehood.WriteOptions{Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if err := r.Service().As("0").Chown(t.Context(), "/home/tester/sub", "1000:1000"); err != nil {
		t.Fatal(err)
	}
	execute(t, r, sh("cd /; mv /home/tester/sub /home/tester/old && ln -s /srv/sub /home/tester/sub"))
	if files, err := s.ReadFiles(t.Context(), "**"); !errors.Is(err, fumehood.ErrPermission) {
		t.Errorf("%q, %v", files, err)
	}
	execute(t, r, sh("cd /; rm /home/tester/sub && mv /home/tester/old /home/tester/sub"))
	if files, err := s.ReadFiles(t.Context(), "**"); err != nil || string(files["a"]) != "1" {
		t.Errorf("%q, %v", files, err)
	}
}

// A user who replaces a file by a link gets nothing that only root may read, and files without rights are fetched.
func TestSession_fetch_replaced(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	env := p.environment(t, "  mount_workspace: false", "  user: '1000:1000'")
	s := p.open(t, env, session.Agent, map[string]string{"d/a": "own"})
	r := spawn(t, s, session.SpawnOptions{})
	if err := r.Service().As("0").WriteFile(t.Context(), "/srv/secret/a", []byte("got"), fumehood.WriteOptions{Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	execute(t, r, sh("mkdir z; echo x > z/x; chmod 0 z/x z; ln -s /srv/secret l"))
	swap, err := r.Service().Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "while :; do mv d e; mv l d; mv d l; mv e d; done"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		files, err := s.ReadFiles(t.Context(), "**")
		if err != nil || string(files["z/x"]) != "x\n" {
			t.Errorf("%q, %v", files, err)
		}
		for name, text := range files {
			if string(text) == "got" {
				t.Fatalf("%s has a file of root", name)
			}
		}
	}
	if err := swap.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestSpawn_remoteDaemon(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	forward(t, l)
	far, err := docker.New(t.Context(), docker.Options{Host: "tcp://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	p.provider = closed(t, far)
	s := p.open(t, p.environment(t), session.Agent, nil)
	if _, err := s.Spawn(t.Context(), session.SpawnOptions{}); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "mount_workspace: false") || !strings.Contains(err.Error(), "upload") {
		t.Errorf("%v", err)
	}
	s = p.open(t, p.environment(t, "  mount_workspace: false"), session.Agent, map[string]string{"a": "there"})
	if res := execute(t, spawn(t, s, session.SpawnOptions{}), sh("cat a")); res.Stdout.Text() != "there" {
		t.Errorf("%q", outputs(res))
	}
	s = p.open(t, p.environment(t, "  mount_workspace: false", "  user: '1000'"), session.Evaluation, nil, withAssets(t))
	if res := execute(t, spawn(t, s, session.SpawnOptions{}), sh("cat /static/given/*/deep/two.txt /static/other.txt; echo > /static/other.txt || echo read-only")); res.Stdout.Text() != "two\nother\nread-only\n" {
		t.Errorf("%q", outputs(res))
	}
}

// forward forwards connections of l to the daemon until the test ends.
func forward(t *testing.T, l net.Listener) {
	socket := dockertest.Socket(t, dockertest.Engine(t))
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("unix", socket)
			if err != nil {
				_ = c.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.(interface{ CloseWrite() error }).CloseWrite()
			}
			go pass(d, c)
			go pass(c, d)
		}
	}()
}

func TestSession_archivesOnly(t *testing.T) {
	t.Parallel()
	p := inDocker(t)
	p.provider = dockertest.Provider(t, docker.Options{Transport: docker.TransportEngine})
	s := p.open(t, p.environment(t, `setup: {commands: ["echo setup"], eval_commands: ["echo eval"]}`), session.Agent, map[string]string{"a": "1"})
	r := spawn(t, s, session.SpawnOptions{})
	if res := execute(t, r, sh("cat a; echo 2 > a")); outputs(res) != "setup\n||1||exited" {
		t.Errorf("%q", outputs(res))
	}
	if got := told(finish(t, s).Changes); got != "changed a" {
		t.Errorf("%s", got)
	}
	execute(t, r, sh("rm a"))
	if err := s.Reset(t.Context()); err != nil {
		t.Error(err)
	}
	if res := execute(t, r, sh("cat a")); res.Stdout.Text() != "2\n" {
		t.Errorf("after Reset: %q", outputs(res))
	}
	evaluation := p.open(t, p.environment(t, `setup: {eval_commands: ["echo eval"]}`), session.Evaluation, nil, withAssets(t))
	if res := execute(t, spawn(t, evaluation, session.SpawnOptions{}), sh("cat /static/other.txt")); outputs(res) != "eval\n||other\n||exited" {
		t.Errorf("evaluation: %q", outputs(res))
	}
	for name, c := range map[string]struct {
		yaml, says string
		opts       session.SpawnOptions
	}{
		"a copied workspace": {yaml: "  mount_workspace: false", says: "copy the workspace into the container"},
		"another user":       {opts: session.SpawnOptions{User: "1234"}, says: "give the workspace to 1234"},
	} {
		s := p.open(t, p.environment(t, c.yaml), session.Agent, nil)
		_, err := s.Spawn(t.Context(), c.opts)
		if !errors.Is(err, fumehood.ErrUnsupported) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "guest transport") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unprivileged is set if this program runs as another user, and holds the home folder of that user.
const unprivileged = "FUMEHOOD_TEST_UNPRIVILEGED"

func TestSession_unprivilegedUser(t *testing.T) {
	t.Parallel()
	runUnprivileged(t, asUnprivileged)
}

// runUnprivileged runs this test as another user of this machine, in a process of its own that calls test.
func runUnprivileged(t *testing.T, test func(t *testing.T, home string)) {
	t.Helper()
	if dir := os.Getenv(unprivileged); dir != "" {
		test(t, dir)
		return
	}
	inDocker(t)
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "fumehood-session-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	forward(t, l)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home, program := filepath.Join(dir, "home"), filepath.Join(dir, "program")
	text, err := os.ReadFile(self)
	if err := errors.Join(err, files.WriteProgram(program, text, 0o755), os.Mkdir(home, 0o700), os.Chown(home, 65534, 65534), os.Chmod(socket, 0o666), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(home, "secret")
	from, err := owner.SecretFile()
	if err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile(from)
	if err := errors.Join(err, os.WriteFile(secret, text, 0o600), os.Chown(secret, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), unprivileged+"="+home, "DOCKER_HOST=unix://"+socket, "HOME="+home, "XDG_STATE_HOME="+home+"/state", owner.SecretVariable+"="+secret, "TMPDIR="+home, tier.Variable+"=quick")
	become(cmd, 65534)
	tier.Again(t, cmd)
}

func asUnprivileged(t *testing.T, home string) {
	p := inDocker(t)
	p.state = filepath.Join(home, "sessions")
	s := p.open(t, p.environment(t), session.Agent, map[string]string{"a": "1"})
	const nasty = `mkdir -p z/y theirs; echo secret > z/y/f; echo x > theirs/f; chown -R 1234:1234 theirs
chmod 700 theirs; chmod 000 z/y/f z/y z; chown 4321 a; chmod 400 a; id -u`
	r := spawn(t, s, session.SpawnOptions{})
	if res := execute(t, r, sh(nasty)); res.Stdout.Text() != "0\n" {
		t.Fatalf("%q", outputs(res))
	}
	c := finish(t, s)
	if got := told(c.Changes); !strings.Contains(got, "added theirs, added theirs/f, added z, added z/y, added z/y/f") {
		t.Errorf("changes: %s", got)
	}
	if files, err := s.ReadFiles(t.Context(), "**/f"); err != nil || string(files["z/y/f"]) != "secret\n" || string(files["theirs/f"]) != "x\n" {
		t.Errorf("%q, %v", files, err)
	}
	execute(t, r, sh("chmod 000 /workspace; chown 1:1 /workspace"))
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := execute(t, r, sh("cat a z/y/f theirs/f; "+nasty)); res.Stdout.Text() != "1secret\nx\n0\n" {
		t.Errorf("after Reset: %q", outputs(res))
	}
	evaluation := p.open(t, p.environment(t), session.Evaluation, nil)
	if res := execute(t, spawn(t, evaluation, session.SpawnOptions{}), sh("id -u; mkdir -p q/r; echo > q/r/x; chmod 0 q/r/x q/r q")); res.Stdout.Text() != "65534\n" {
		t.Errorf("%q", outputs(res))
	}
	cleansUp(t, p, nasty)
	for _, s := range []*session.Session{s, evaluation} {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(p.state); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// cleansUp removes the leftovers of a session whose process ended without closing it.
func cleansUp(t *testing.T, p *place, nasty string) {
	t.Helper()
	s := p.open(t, p.environment(t), session.Agent, map[string]string{"a": "1"})
	r := spawn(t, s, session.SpawnOptions{})
	execute(t, r, sh(nasty))
	if err := r.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(s.Workspace())
	abandon(t, folder)
	for _, with := range []fumehood.Provider{nil, p.provider} {
		found, err := session.Cleanup(t.Context(), with, p.state, provider.CleanupOptions{})
		removed := slices.ContainsFunc(found, func(l provider.Leftover) bool { return l.Name == folder && l.Removed })
		if with == nil && (!errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "daemon")) {
			t.Errorf("without a daemon: %v", err)
		}
		if want := with != nil; removed != want || want && err != nil {
			t.Errorf("removed: %v, want %v: %v", removed, want, err)
		}
	}
}

// BenchmarkExecute compares Execute without a setup with the service's own Exec of the same command.
func BenchmarkExecute(b *testing.B) {
	p, err := docker.New(b.Context(), docker.Options{})
	if err != nil {
		b.Skipf("no Docker: %v", err)
	}
	defer p.Close(b.Context())
	env, err := spec.Parse("bench.yaml", []byte("type: docker\ndocker: {image: "+image+"}\nsetup: {commands: ['true']}\n"))
	if err != nil {
		b.Fatal(err)
	}
	s, err := session.Open(b.Context(), session.Options{Provider: p, Environment: env, Kind: session.Agent, Workspace: b.TempDir(), Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(b.Context())
	for name, disabled := range map[string]bool{"disabled": true, "set-up": false} {
		r, err := s.Spawn(b.Context(), session.SpawnOptions{DisableSetup: disabled})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := r.Execute(b.Context(), sh("true")); err != nil {
					b.Fatal(err)
				}
			}
		})
		if disabled {
			b.Run("exec", func(b *testing.B) {
				for b.Loop() {
					if _, err := r.Service().Exec(b.Context(), fumehood.Cmd{Args: []string{"/bin/sh", "-c", "true"}}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
