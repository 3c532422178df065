package docker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// The runtime looks up users in the container's files. It would block indefinitely on a pipe, and read a device without
// end.
func TestLookup_endlessFile(t *testing.T) {
	t.Parallel()
	const own = "services: {default: {image: fumehood-test/busybox, tmpfs: [/ram], command: [sh, -c, 'touch /tmp/up; while :; do sleep 1; done']}}"
	for name, c := range map[string]struct {
		own    bool
		direct bool
		script string
		found  bool
	}{
		"a pipe":                         {script: "rm /etc/passwd; mkfifo /etc/passwd"},
		"links to a regular file":        {script: "mv /etc/group /etc/g; ln -s g /etc/h; ln -s /etc/h /etc/group", found: true},
		"a file of who looks":            {script: "mkdir /tmp/d; cd /tmp/d; mkfifo g; ln -sf /proc/self/cwd/tmp/d/g /etc/group; mkdir -p /tmp/d/tmp"},
		"a folder of who looks":          {script: "cp -a /etc /proc-etc; mv /etc /old; ln -s /proc/self/root/proc-etc /etc"},
		"beside an own program":          {own: true, script: "rm /etc/passwd; mkfifo /etc/passwd"},
		"a device":                       {own: true, script: "rm /etc/group; ln -s /dev/urandom /etc/group"},
		"a device by links":              {own: true, script: "rm /etc/group; ln -s /dev /x; ln -s /x/urandom /etc/group"},
		"what the Engine cannot see":     {own: true, script: "rm /etc/group; mkfifo /ram/g; ln -s /ram/g /etc/group"},
		"a folder that it cannot see":    {own: true, script: "cp -a /etc/. /ram; mkfifo /ram/g; mv /ram/g /ram/group; mv /etc /old; ln -s /ram /etc"},
		"links to a regular file, there": {own: true, script: "mv /etc/group /etc/g; ln -s g /etc/h; ln -s /etc/h /etc/group", found: true},
		"a pipe, by the Engine":          {direct: true, script: "rm /etc/passwd; mkfifo /etc/passwd"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fumehood.Spec{Image: busybox}
			if c.own {
				spec = fumehood.Spec{Compose: project(t, own)}
			}
			opts := docker.Options{}
			if c.direct {
				opts = opts.Sped(6)
			}
			sb := start(t, newProvider(t, opts), spec)
			sh(t, sb, c.script)
			var svc fumehood.Service = sb
			if c.direct {
				svc = sb.ViaEngine()
			}
			began := time.Now()
			res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}, User: "nobody"})
			switch took := time.Since(began); {
			case c.found && (err != nil || !res.Success()):
				t.Errorf("%+v, %v", res, err)
			case c.found:
			case !errors.Is(err, fumehood.ErrUserNotFound):
				t.Errorf("after %v: %+v, %v", took, res, err)
			case !c.direct && took > 20*time.Second:
				t.Errorf("only after %v: %v", took, err)
			}
		})
	}
}

// A process that creates the pipe after the check is also detected.
func TestLookup_fileSwapped(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Image: debian})
	begun(t, sb, fumehood.Cmd{Args: []string{"python3", "-c", `
import os
os.mkfifo("/pipe")
os.system("cp /etc/passwd /passwd")
print("begun", flush=True)
while True:
    for kind in "passwd", "pipe":
        os.symlink("/" + kind, "/etc/new")
        os.rename("/etc/new", "/etc/passwd")
`}})
	for began := time.Now(); time.Since(began) < 2*time.Minute; {
		_, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}, User: "12345"})
		if err == nil {
			sh(t, sb, `for p in /proc/[0-9]*; do test $(stat -c %u $p) = 12345 && kill -9 ${p#/proc/}; done; true`)
			continue
		}
		if errors.Is(err, fumehood.ErrBroken) {
			continue // the guest was killed above, which this command may notice first
		}
		if !errors.Is(err, fumehood.ErrUserNotFound) || !strings.Contains(err.Error(), "/etc/passwd") {
			t.Error(err)
		}
		return
	}
}

// A restarted service runs no guest, but the Engine can still run commands there.
func TestViaEngine_restartedService(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t,
		"services: {default: {image: fumehood-test/busybox, user: '1000', restart: always, command: [sh, -c, 'touch /tmp/up; until test -e /tmp/end; do sleep 0.1; done; rm /tmp/end']}}")})
	_, _ = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "echo x >/tmp/before; touch /tmp/end; sleep 60"}}) // ends with the service
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(time.Minute); ; <-again.C {
		res, err := sb.ViaEngine().Exec(t.Context(), fumehood.Cmd{Args: []string{"cat", "/tmp/before"}})
		if err == nil && res.Success() && res.Stdout.Text() == "x\n" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrBroken) {
		t.Errorf("by the guest: %v", err)
	}
	res, err := sb.ViaEngine().Exec(t.Context(), fumehood.Cmd{Args: []string{"id", "-u"}, User: "root"})
	if lacks := errors.Is(err, fumehood.ErrUnsupported) && strings.Contains(err.Error(), "capabilities"); !lacks && (err != nil || res.Stdout.Text() != "0\n") {
		t.Errorf("as root: %+v, %v", res, err)
	}
}
