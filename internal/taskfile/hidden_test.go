package taskfile

import (
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/dockertest"
)

// A grader that a Dockerfile builds gets hidden files, whatever its user. The build must not see them: a Dockerfile among
// them is refused before the first attempt.
func TestTask_hiddenDockerfile(t *testing.T) {
	t.Parallel()
	f, _ := mustLay(t, map[string]string{
		"task.yaml": `
name: hidden
environment: {image: fumehood-test/busybox, workdir: /work}
command: "echo 42 >answer"
samples:
  - id: beside
    grader:
      environment: {dockerfile: Dockerfile}
      command: "test $(cat /tests/key) = $(cat /submission/answer)"
      hidden: {tests: /tests}
      artifacts: [answer]
      score: exit_code
  - id: user
    grader:
      environment: {dockerfile: user/Dockerfile}
      command: "test $(id -u) = 65534 && test $(cat /tests/key) = $(cat /submission/answer)"
      hidden: {tests: /tests}
      artifacts: [answer]
      score: exit_code
  - id: own user
    grader:
      environment: {dockerfile: user/Dockerfile}
      user: "1234"
      command: "test $(id -u) = 1234 && test $(cat /tests/key) = $(cat /submission/answer)"
      hidden: {tests: /tests}
      artifacts: [answer]
      score: exit_code
`,
		"Dockerfile": "FROM fumehood-test/busybox\n", "user/Dockerfile": "FROM fumehood-test/busybox\nWORKDIR /home\nUSER nobody\n", "tests/key": "42\n",
	})
	p := dockertest.Provider(t, docker.Options{NoSweep: true})
	for id, r := range run(t, f, p) {
		if got := said(r); got != "1  | 1 exited 0 " {
			t.Errorf("%s: %s", id, got)
		}
	}

	f, _ = mustLay(t, map[string]string{
		"task.yaml": `
name: inside
environment: {image: fumehood-test/busybox}
command: "true"
grader: {command: "true", environment: {dockerfile: tests/Dockerfile}, hidden: {tests: /tests}}
samples: [{id: a}, {id: b}]
`,
		"tests/Dockerfile": "FROM fumehood-test/busybox\n",
	})
	opts, how, err := f.Task(t.Context(), dockertest.Provider(t, docker.Options{NoSweep: true}), TaskOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for r, err := range task.Run(t.Context(), opts, how) {
		if n++; n > 1 || !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "images cannot be built from") {
			t.Errorf("got %+v, %v", r, err)
		}
	}
}
