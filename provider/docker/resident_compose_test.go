package docker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
)

// workerAndWeb has a service that only idles, which is not the first by name, and a service that runs its own program.
const workerAndWeb = `
services:
  web:
    image: fumehood-test/python
    user: "1234"
    command: ["python3", "-u", "-c", "import time\nprint('serving')\nwhile True: time.sleep(1)"]
  worker:
    image: fumehood-test/python
    command: sleep infinity
    x-default: true
  once:
    image: fumehood-test/busybox
    command: ["sh", "-c", "echo done; echo bad >&2"]
`

// keepProject starts a kept Compose project, and closes it.
func keepProject(t *testing.T, text string) (name string) {
	t.Helper()
	sb := keep(t, newProvider(t, docker.Options{}), fumehood.Spec{Compose: project(t, text)})
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sb.Info().Name
}

func service(t *testing.T, sb fumehood.Sandbox, name string) fumehood.Service {
	t.Helper()
	s, err := sb.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpen_endedService(t *testing.T) {
	t.Parallel()
	name := keepProject(t, workerAndWeb)
	sb := open(t, name, docker.Options{})
	if _, err := service(t, sb, "once").Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrUnavailable) || !strings.Contains(err.Error(), "exited with code 0") {
		t.Errorf("in a service that has ended: %v", err)
	}
}

// The guest of a service with its own program is not the container's first process. Code of the same user can kill it
// and take its place.
func TestResident_impostor(t *testing.T) {
	t.Parallel()
	name := keepProject(t, workerAndWeb)
	sb := open(t, name, docker.Options{})
	web := service(t, sb, "web")
	// An exec of the Engine does not end with the guest.
	impostor := fumehood.Cmd{ViaEngine: true, Args: []string{"python3", "-u", "-c", `
import os, re, signal, socket
name = re.search(r'@(fumehood-\w+)', open('/proc/net/unix').read()).group(1)
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        if b'\0serve\0' in open('/proc/%s/cmdline' % pid, 'rb').read():
            os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
while True:
    try:
        s = socket.socket(socket.AF_UNIX)
        s.bind('\0' + name)
        break
    except OSError:
        pass
s.listen()
print('bound')
for i in range(2):
    c, _ = s.accept()
    c.sendall(bytes(32))            # a question
    c.recv(1000)                    # the host's question and proof
    c.sendall(bytes(32))            # what should prove that this is the guest
    c.sendall(b'\0\0\0\0\1\0\0\1\1') # a greeting
    print('answered')
s.close()
`}}
	d, err := web.Start(t.Context(), fumehood.Cmd{Args: []string{"sleep", "1000"}, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	attack, err := web.Start(t.Context(), impostor)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := d.Wait(t.Context()); err != nil || res.Outcome != fumehood.Lost {
		t.Errorf("the command of the guest that was killed: %+v, %v", res, err)
	}
	for c, err := range attack.Follow(t.Context(), fumehood.Stdout, 0) {
		if err != nil || !strings.HasPrefix(string(c.Data), "bound") {
			t.Fatalf("%q, %v", c.Data, err)
		}
		break
	}
	for range 2 {
		if _, err := web.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); !errors.Is(err, fumehood.ErrUnavailable) {
			t.Errorf("a command for the impostor: %v", err)
		}
	}
	if res, err := attack.Wait(t.Context()); err != nil || res.Stdout.Text() != "bound\nanswered\nanswered\n" {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := web.Exec(t.Context(), fumehood.Cmd{Args: []string{"echo", "again"}}); err != nil || res.Stdout.Text() != "again\n" {
		t.Errorf("after the impostor has ended: %+v, %v", res, err)
	}
}
