package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
)

// A request that package encoding/json would alter is refused: no other command runs.
func TestText_refused(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	dir := t.TempDir()
	for i, name := range []string{"a\xffb", `a\ud800b`, `a\udc00`, `\ud83d\ud83d`, "\xed\xa0\x80"} {
		ran := filepath.Join(dir, fmt.Sprint(i))
		body := fmt.Sprintf(`{"args":["touch",%q,"%s"]}`, ran, name)
		for _, at := range []string{"/run", "/processes"} {
			c.fails(400, fumehood.CodeConfig, "POST", box+at, []byte(body))
		}
		if _, err := os.Lstat(ran); err == nil {
			t.Errorf("%q: a command has run", name)
		}
		c.fails(400, fumehood.CodeConfig, "POST", box+"/mkdir", []byte(`{"path":"`+name+`"}`))
		c.fails(400, fumehood.CodeConfig, "POST", "/v1/sandboxes", []byte(`{"env":{"A":"`+name+`"}}`))
	}
	for _, body := range []string{`{"args":["true",{}]}`, `{"args":["true",{"base64":"?"}]}`, `{"args":["true"],"env":["A"]}`, `{"args":["true",{"base64":"YQ==","x":1}]}`} {
		if status, data := c.answer("POST", box+"/run", []byte(body)); status != 400 && status != 422 {
			t.Errorf("%s: got %d %s", body, status, data)
		}
	}
}

// Arguments, variables, directories and paths have any bytes, in requests and in answers.
func TestText_any_bytes(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{})
	box := c.box()
	const name = "caf\xe9"
	var res fumehood.Result
	run := func(cmd api.Cmd) string {
		c.ok("POST", box+"/run", cmd, &res)
		if res.ExitCode != 0 {
			t.Errorf("%q: %+v", cmd.Args, res)
		}
		return string(res.Stdout.Bytes)
	}
	if got := run(api.Cmd{Args: []api.Text{"printf", "%s", name}}); got != name {
		t.Errorf("printed %q", got)
	}
	if got := run(api.Cmd{Args: []api.Text{"env"}, Env: api.Env{"A": name, "B": "\U0001F600"}}); !strings.Contains(got, "A="+name+"\n") || !strings.Contains(got, "B=\U0001F600\n") {
		t.Errorf("the variables are %q", got)
	}
	if got := run(api.Cmd{Args: []api.Text{"env"}, Env: api.Env{name: "1=\xff"}}); !strings.Contains(got, name+"=1=\xff\n") {
		t.Errorf("the variables are %q", got)
	}
	c.ok("POST", box+"/mkdir", map[string]any{"path": api.Text(name)}, nil)
	c.ok("PUT", box+"/file?path=caf%E9/1%FF", []byte("1"), nil)
	if got := run(api.Cmd{Args: []api.Text{"cat", "1\xff"}, Dir: name}); got != "1" {
		t.Errorf("read %q", got)
	}
	run(api.Cmd{Args: []api.Text{"ln", "-s", "to\xff", "caf\xe9/2\xff"}})
	var list struct{ Files []api.FileInfo }
	c.ok("GET", box+"/list?path=caf%E9", nil, &list)
	if len(list.Files) != 2 || list.Files[0].Name != "1\xff" || list.Files[1].Name != "2\xff" || list.Files[1].Target != "to\xff" {
		t.Errorf("listed %+v", list.Files)
	}
	_, walked := c.answer("GET", box+"/walk?path=caf%E9", nil)
	if want := `"path":{"base64":"Mf8="}`; !strings.Contains(string(walked), want) {
		t.Errorf("walked %s, want %s", walked, want)
	}
	c.ok("POST", box+"/rename", map[string]any{"path": api.Text("caf\xe9/1\xff"), "to": api.Text("caf\xe9/3\xff")}, nil)
	c.ok("POST", box+"/remove", map[string]any{"path": api.Text("caf\xe9/3\xff")}, nil)
	status, data := c.answer("GET", box+"/file?path=caf%E9/1%FF", nil)
	var failed struct{ Error api.Error }
	if err := json.Unmarshal(data, &failed); err != nil || status != 404 || failed.Error.Path != "caf\xe9/1\xff" || strings.ContainsRune(string(data), '\uFFFD') {
		t.Errorf("got %d %s", status, data)
	}
	var p api.Process
	c.ok("POST", box+"/processes", api.Cmd{Args: []api.Text{"true", name}}, &p)
	if len(p.Args) != 2 || p.Args[1] != name {
		t.Errorf("started %+v", p)
	}
}
