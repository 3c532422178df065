package cli

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood/provider/native"
)

// oldEngine starts an Engine that reports an old version and does nothing else. It returns its address.
func oldEngine(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(oldVersion)
	t.Cleanup(s.Close)
	return "tcp://" + s.Listener.Addr().String()
}

var oldVersion = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.41")
	w.Header().Set("Content-Type", "application/json")
	text := `{"message": "this Engine does nothing"}`
	switch {
	case strings.HasSuffix(r.URL.Path, "/_ping"):
		text = "OK"
	case strings.HasSuffix(r.URL.Path, "/version"):
		text = `{"Version": "20.10.24", "ApiVersion": "1.41", "Os": "linux", "Arch": "amd64"}`
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = w.Write([]byte(text))
})

// The native provider's builds need an Engine too.
func TestOldEngine_strictBuild(t *testing.T) {
	t.Parallel()
	if err := native.CheckSupport(); err != nil {
		t.Skip(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: oldVersion, ReadHeaderTimeout: time.Minute}}
	s.Start()
	t.Cleanup(s.Close)
	first, dir := program(t)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, strict := range []bool{false, true} {
		cmd := exec.CommandContext(t.Context(), "fumehood", "run", "--provider", "native", "--strict-prereqs="+strconv.FormatBool(strict), "-f", "Dockerfile", "--", "true")
		cmd.Env, cmd.Dir = append(first.Env, "DOCKER_HOST=unix://"+socket, "DOCKER_CONTEXT="), dir
		text, _ := cmd.CombinedOutput() // it fails: this Engine does nothing
		if strings.Contains(string(text), "built with a Docker Engine or BuildKit: check prerequisites: Docker Engine 20.10.24 is older") != strict {
			t.Errorf("strict %t: %s", strict, text)
		}
	}
}

func TestOldEngine_warning(t *testing.T) {
	t.Parallel()
	one, two := oldEngine(t), oldEngine(t)
	first, dir := program(t)
	const warning = "is older than 28.0"
	run := func(daemon string, args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "fumehood", args...)
		cmd.Env, cmd.Dir = append(first.Env, "DOCKER_HOST="+daemon, "DOCKER_CONTEXT="), dir
		var out, err bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &err
		_ = cmd.Run() // it fails: this Engine does nothing
		return out.String(), err.String()
	}
	for i, c := range []struct {
		daemon string
		args   []string
		warns  bool
	}{
		{one, []string{"ps"}, false}, // starts no sandbox
		{one, []string{"--log-level", "error", "run", "true"}, false},
		{one, []string{"run", "true"}, true},
		{one, []string{"run", "true"}, false},
		{one, []string{"--log-format", "json", "up"}, false},
		{one, []string{"--log-level", "debug", "run", "true"}, true}, // not as a warning
		{two, []string{"run", "true"}, true},
		{two, []string{"run", "true"}, false},
	} {
		if _, stderr := run(c.daemon, c.args...); strings.Contains(stderr, warning) != c.warns {
			t.Errorf("%d: %q prints %q", i, c.args, stderr)
		}
	}
	if stdout, _ := run(one, "doctor"); !strings.Contains(stdout, "lacks later fixes") {
		t.Errorf("doctor prints %q", stdout)
	}

	// Where nothing can be remembered, the warning comes each time.
	folder := filepath.Join(dir, "state", "fumehood", "warned")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, stderr := run(one, "run", "true"); !strings.Contains(stderr, warning) || strings.Contains(stderr, "warned") {
			t.Errorf("without a folder: %q", stderr)
		}
	}
}
