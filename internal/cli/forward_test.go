//go:build unix

package cli

import (
	"bufio"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestForward(t *testing.T) {
	t.Parallel()
	needDocker(t)
	up, dir := program(t, "up", "--image", "fumehood-test/python")
	fumehood := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "fumehood", args...)
		cmd.Env, cmd.Dir = up.Env, dir
		return cmd
	}
	name, err := up.Output()
	box := strings.TrimSpace(string(name))
	if err != nil || box == "" {
		t.Fatalf("%q, %v", name, err)
	}
	server := fumehood("exec", "--detach", box, "--", "python3", "-m", "http.server", "8000", "--bind", "127.0.0.1")
	if out, err := server.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := fumehood("forward", box, "8000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	interrupted(t, cmd, syscall.SIGINT, func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		m := regexp.MustCompile(`^8000/tcp at (127\.0\.0\.1:\d+)\n$`).FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("got %q", line)
		}
		eventually(t, "the server answers", func() bool {
			conn, err := net.DialTimeout("tcp", m[1], 10*time.Second) //nolint:noctx // bounded
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
				return false
			}
			answer, _ := bufio.NewReader(conn).ReadString('\n') // empty until the server listens
			return strings.HasPrefix(answer, "HTTP/1.0 200 ")
		})
	})
	if out, err := fumehood("down", box).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := fumehood("forward", box, "x").CombinedOutput(); err == nil || !strings.Contains(string(out), `"x" is not [HOST:]PORT`) {
		t.Errorf("%v: %s", err, out)
	}
}
