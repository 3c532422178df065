package fumehood

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseTmpfs(t *testing.T) {
	for text, want := range map[string]Tmpfs{
		"/x":                             {Container: "/x"},
		"/x/:":                           {Container: "/x"},
		"/x:size=64m,mode=1777":          {Container: "/x", Options: []string{"size=67108864", "mode=1777"}},
		"/x:size=64MiB,exec,ro":          {Container: "/x", Options: []string{"size=67108864"}, Exec: true, ReadOnly: true},
		"/x:size=5,uid=4294967294,gid=0": {Container: "/x", Options: []string{"size=5", "uid=4294967294", "gid=0"}},
		"/x:size=50%,nr_inodes=1k":       {Container: "/x", Options: []string{"size=50%", "nr_inodes=1k"}},
		"/x:exec,noexec,ro,rw,nosuid":    {Container: "/x"},
		"/x:nodev,,nr_blocks=3":          {Container: "/x", Options: []string{"nr_blocks=3"}},
	} {
		got, err := ParseTmpfs(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
		if again, err := ParseTmpfs(got.String()); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s: %s is read as %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{
		"/x:size", "/x:size=", "/x:size=0", "/x:size=0%", "/x:size=-1", "/x:size=1.5g", "/x:size=none", "/x:size=9999999t", "/x:size=99999999999999999999",
		"/x:mode=8", "/x:mode=10000", "/x:mode=", "/x:uid=root", "/x:uid=4294967295", "/x:gid=-1", "/x:exec=1", "/x:=1", "/x:bind", "/x:suid", "/x:dev",
		"/x:remount", "/x:noatime", "/x:size=1m\n", "/x\x00:ro", "/x:nr_inodes=-1", "/x:size=1m:ro",
	} {
		if got, err := ParseTmpfs(text); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

func TestSpec_tmpfs(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		want string // part of the error; empty means none
	}{
		"valid":           {Spec{Tmpfs: []string{"/x", "/x/y:size=2g", "/devices"}}, ""},
		"no limit":        {Spec{Tmpfs: []string{"/x:size=3g"}, Limits: Limits{Memory: NoLimit}}, ""},
		"two mounts":      {Spec{Tmpfs: []string{"/x", "/x/:size=1m"}}, "two mounts at /x"},
		"mount and tmpfs": {Spec{Mounts: []Mount{{Host: "/a", Container: "/x/"}}, Tmpfs: []string{"/y/../x"}}, "two mounts at /x"},
		"two binds":       {Spec{Mounts: []Mount{{Host: "/a", Container: "/x"}, {Host: "/b", Container: "/x/"}}}, "two mounts at /x"},
		"relative":        {Spec{Tmpfs: []string{"x"}}, "needs an absolute path"},
		"empty":           {Spec{Tmpfs: []string{""}}, "needs an absolute path"},
		"root":            {Spec{Tmpfs: []string{"/.."}}, "needs an absolute path"},
		"proc":            {Spec{Tmpfs: []string{"/proc"}}, "the sandbox has its own file systems there"},
		"below sys":       {Spec{Tmpfs: []string{"/x/../sys/fs/cgroup"}}, "the sandbox has its own file systems there"},
		"shm":             {Spec{Tmpfs: []string{"/dev/shm"}}, "the sandbox has its own file systems there"},
		"guest":           {Spec{Tmpfs: []string{"//.fumehood/"}}, "the sandbox has its own file systems there"},
		"option":          {Spec{Tmpfs: []string{"/x:bind"}}, "bind: not a supported option of a tmpfs"},
		"above memory":    {Spec{Tmpfs: []string{"/x:size=3g"}}, "above the memory limit of 2147483648"},
		"project":         {Spec{Compose: &Compose{Content: "{}"}, Tmpfs: []string{"/x"}}, "Tmpfs and Compose exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrConfig)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
