package session

import (
	"maps"
	"os"
	"strconv"
	"testing"

	"github.com/fumehood/fumehood/session/spec"
)

func TestSession_specOf_hostUser(t *testing.T) {
	uid, gid := strconv.Itoa(os.Getuid()), strconv.Itoa(os.Getgid())
	if os.Getuid() < 0 {
		t.Skip("this system has no uids")
	}
	for name, c := range map[string]struct {
		opts  Options
		spawn map[string]string
		want  map[string]string
	}{
		"options": {Options{Kind: Evaluation, HUID: "1234", HGID: "99"}, nil, map[string]string{"A": "b", "HUID": "1234", "HGID": "99"}},
		"process": {Options{Kind: Agent}, nil, map[string]string{"A": "b", "HUID": uid, "HGID": gid}},
		"spawn":   {Options{Kind: Evaluation, HUID: "1234"}, map[string]string{"HUID": "1", "HGID": ""}, map[string]string{"A": "b", "HUID": "1", "HGID": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			e := &spec.Environment{Type: spec.TypeDocker, Docker: spec.Docker{Image: "i"}, Environment: spec.Variables{Env: map[string]string{"A": "b"}}}
			c.opts.Environment = e
			s := &Session{opts: c.opts, env: e.WithDefaults(), folder: t.TempDir()}
			if err := os.Mkdir(s.Workspace(), 0o700); err != nil {
				t.Fatal(err)
			}
			got, err := s.specOf(SpawnOptions{Env: c.spawn})
			if err != nil || !maps.Equal(got.Env, c.want) {
				t.Errorf("got %v, %v; want %v", got.Env, err, c.want)
			}
			if len(e.Environment.Env) != 1 {
				t.Errorf("the environment has changed: %v", e.Environment.Env)
			}
		})
	}
}
