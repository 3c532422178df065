package docker_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
)

// detachedBy starts a detached command as a user; empty means the service's own.
func detachedBy(t *testing.T, s fumehood.Service, user, script string) fumehood.Process {
	t.Helper()
	d, err := s.Start(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script}, User: user, Detach: true, StdinPipe: true})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// listedIn lists the service's detached commands, and returns their numbers and scripts.
func listedIn(t *testing.T, s fumehood.Service) string {
	t.Helper()
	if err := s.RefreshProcesses(t.Context()); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range s.Processes() {
		fmt.Fprintf(&b, "%d %s;", p.Info().ID, p.Info().Args[2])
	}
	return b.String()
}

// webAlone runs its own program, so that all of its guests are started by execs.
const webAlone = `
services:
  web: {image: fumehood-test/python, user: "1234", command: ["python3", "-c", "import time\nwhile True: time.sleep(1)"]}
`

func TestDetached_userGuestKilled(t *testing.T) {
	t.Parallel()
	name := keepProject(t, webAlone)
	sb := open(t, name, docker.Options{})
	web := service(t, sb, "web")
	detachedBy(t, web, "nobody", "read -r line")
	detachedBy(t, web, "", "sleep 1000")
	detachedBy(t, web, "daemon", "sleep 2000")
	kill := fumehood.Cmd{User: "nobody", Args: []string{"sh", "-c", "kill -9 -1"}, Timeout: time.Minute} // all processes of that user at once
	if _, err := web.Exec(t.Context(), kill); err != nil && !errors.Is(err, fumehood.ErrUnavailable) {
		t.Fatal(err)
	}
	later := service(t, open(t, name, docker.Options{}), "web")
	conformance.Eventually(t, "the commands of nobody are not listed", func() bool {
		return listedIn(t, later) == "2 sleep 1000;3 sleep 2000;"
	})
	if d := detachedBy(t, later, "nobody", "sleep 3000"); d.Info().ID != 4 {
		t.Errorf("the next one has number %d", d.Info().ID)
	}
	if got := listedIn(t, later); got != "2 sleep 1000;3 sleep 2000;4 sleep 3000;" {
		t.Errorf("listed: %s", got)
	}
}
