package spec

import "testing"

func TestUsers(t *testing.T) {
	for _, c := range []struct {
		docker, huid, hgid string
		uid, gid           int
		want               string
	}{
		{"nobody", "1", "2", 3, 4, "nobody"},
		{"", "1", "2", 3, 4, "1:2"},
		{"", "", "", 3, 4, "3:4"},
		{"", "", "", 0, 0, "0:0"},
		{"", "1", "", 3, 4, "1:4"},
		{"", "", "2", 3, 4, "3:2"},
		{"", "1", "2", -1, -1, "1:2"},
		{"", "1", "", -1, -1, "1"},
		{"", "", "", -1, -1, ""},
		{"", "", "2", -1, -1, ""},
	} {
		if got := EvaluationUser(c.docker, c.huid, c.hgid, c.uid, c.gid); got != c.want {
			t.Errorf("evaluation of %+v: %q", c, got)
		}
	}
}
