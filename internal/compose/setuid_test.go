package compose

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestLoad_setuid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dockerfile, service string
		at                  string // "" if there is no warning
	}{
		"symbolic mode":   {"FROM i\nRUN chmod u+s /bin/x\n", "build: .", "Dockerfile:2"},
		"numeric mode":    {"FROM i\nRUN true && \\\n  chmod -R 4755 /bin/x; true\n", "build: .", "Dockerfile:3"},
		"set-gid":         {"FROM i\nRUN chmod 02775 /srv; chmod -R g+s /srv\n", "build: .", ""},
		"plus s":          {"FROM i\nRUN [\"chmod\", \"+s\", \"/bin/x\"]\n", "build: .", "Dockerfile:2"},
		"copied":          {"FROM i\nCOPY --chmod=4755 x /bin/x\n", "build: .", "Dockerfile:2"},
		"installed":       {"FROM i\nRUN install -o root -m 4755 x /bin/x\n", "build: .", "Dockerfile:2"},
		"sudo":            {"FROM i\nRUN apt-get install -y sudo curl\n", "build: .", "Dockerfile:2"},
		"sudoers":         {"FROM i\nRUN echo 'a ALL=(ALL) NOPASSWD: ALL' >>/etc/sudoers\n", "build: .", "Dockerfile:2"},
		"capabilities":    {"FROM i\nRUN setcap cap_net_raw+ep /bin/x\n", "build: .", "Dockerfile:2"},
		"inline":          {"", "build: {dockerfile_inline: \"FROM i\\nRUN chmod u+s /x\\n\"}", "compose.yaml:3"},
		"its command":     {"", "image: i\n    command: sudo -u web server", "compose.yaml:4"},
		"its entrypoint":  {"", "image: i\n    entrypoint: [sh, -c, 'exec /usr/bin/sudo x']", "compose.yaml:4"},
		"su of a user":    {"", "image: i\n    user: web\n    command: su - other -c x", "compose.yaml:5"},
		"su of root":      {"", "image: i\n    command: su - other -c x", ""},
		"allowed":         {"FROM i\nRUN chmod u+s /bin/x\n", "build: .\n    security_opt: ['no-new-privileges:false']", ""},
		"forbidden":       {"FROM i\nRUN chmod u+s /bin/x\n", "build: .\n    security_opt: ['no-new-privileges:true']", ""},
		"commented":       {"FROM i\n# RUN chmod u+s /bin/x\n", "build: .", ""},
		"other modes":     {"FROM i\nRUN chmod 755 /a; chmod 0755 /b; chmod u+x,g-s /c; chmod 1777 /d; chmod +x s\n", "build: .", ""},
		"other words":     {"FROM i\nRUN echo pseudo sudoku resume 4755\nCOPY su.txt /x\n", "build: .", ""},
		"no such file":    {"", "build: ./none", ""},
		"another service": {"FROM i\n", "build: .", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := project(t, map[string]string{"compose.yaml": "services:\n  web:\n    " + c.service + "\n", "Dockerfile": c.dockerfile})
			p, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}})
			if err != nil {
				t.Fatal(err)
			}
			var at []string
			for _, w := range p.Warnings() {
				at = append(at, strings.TrimPrefix(w.At, dir+"/"))
				if w.Key != "services.web" || !strings.Contains(w.Reason, "no-new-privileges:false") {
					t.Errorf("got %+v", w)
				}
			}
			if got := strings.Join(at, " "); got != c.at {
				t.Errorf("got %q, want %q", got, c.at)
			}
		})
	}
}
