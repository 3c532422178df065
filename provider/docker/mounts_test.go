package docker_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/faultproxy"
	"github.com/fumehood/fumehood/test/filetest"
)

// The Engine looks up a path again after it was checked. A process that can write to a parent folder may replace a link
// in between.
func TestMounts_pathSwapped(t *testing.T) {
	t.Parallel()
	if os.PathSeparator != '/' {
		t.Skip("links to folders")
	}
	dir := filetest.Lay(t, map[string]string{"good/file": "good", "bad/file": "bad"})
	link := filepath.Join(dir, "link")
	point := func(to string) {
		if err := errors.Join(os.Symlink(filepath.Join(dir, to), link+".new"), os.Rename(link+".new", link)); err != nil {
			t.Error(err)
		}
	}
	point("good")
	p, proxy := faulty(t, docker.Options{})
	spec := fumehood.Spec{Image: busybox, User: "nobody", Mounts: []fumehood.Mount{
		{Host: link, Container: "/mnt"}, {Host: filepath.Join(link, "file"), Container: "/root/file"}, // the second one is in a folder that the user may not enter
	}}
	sb := start(t, p, spec)
	if got := sh(t, sb, "cat /mnt/file"); got != "good" {
		t.Errorf("got %q", got)
	}
	proxy.Decide(func(call string) faultproxy.Fault {
		if call == "POST /containers/create" {
			point("bad")
		}
		return faultproxy.None
	})
	_, err := p.Start(t.Context(), spec)
	if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "the mount is not what was checked") {
		t.Errorf("got %v", err)
	}
}
