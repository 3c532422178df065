package compose

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// setuid matches the parts of Dockerfile lines and commands that make programs set-uid, give them capabilities, or use
// sudo.
var setuid = regexp.MustCompile(`(?:^|[\s;&|("'=/])(?:` +
	`(?:chmod|install)["',]*\s(?:[^;&|]*[\s"'])?(?:0?[4-7][0-7]{3}|(?:[goa]*u[ugoa]*|a?)\+[rwxXt]*s[rwxXst]*)(?:$|[\s;&|)"',\]])` +
	`|--chmod=(?:0?[4-7][0-7]{3}|u[goa]*\+[rwxXt]*s)` +
	`|setcap(?:$|[\s"',])|sudo(?:ers)?(?:$|[\s;&|)"',/]))`)

// switching matches the command su, which needs no set-uid program where root runs it.
var switching = regexp.MustCompile(`(?:^|[\s;&|("'/])su(?:$|[\s"',])`)

// findSetuid returns a warning for each service that relies on set-uid programs, as far as its Dockerfile and its
// commands show: they gain no privileges.
func (p *Project) findSetuid() (all []Warning) {
	for _, name := range p.places.order(p.project.Services) {
		svc := p.project.Services[name]
		if svc.Privileged || slices.ContainsFunc(svc.SecurityOpt, func(opt string) bool { return strings.HasPrefix(opt, "no-new-privileges") }) {
			continue
		}
		if at := p.setuidAt(svc); at != "" {
			all = append(all, Warning{"services." + name, at, fmt.Sprintf(
				"it seems to rely on set-uid programs, sudo or file capabilities, which gain no privileges: "+
					`security_opt: ["no-new-privileges:false"] in the service %s of a Compose file allows it`, name)})
		}
	}
	return all
}

// setuidAt returns where a service shows that it relies on set-uid programs, or "".
func (p *Project) setuidAt(svc types.ServiceConfig) string {
	for key, command := range map[string]types.ShellCommand{"command": svc.Command, "entrypoint": svc.Entrypoint} {
		text := strings.Join(command, " ")
		root := slices.Contains([]string{"", "0", "root"}, strings.Split(svc.User, ":")[0])
		if setuid.MatchString(text) || !root && switching.MatchString(text) {
			return p.places.find([]string{"services", svc.Name, key}).String()
		}
	}
	if svc.Build == nil {
		return ""
	}
	build := p.build(svc)
	text, path, err := build.DockerfileText()
	if err != nil { // the build reports it
		return ""
	}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") || !setuid.MatchString(line) {
			continue
		}
		if build.Inline != "" {
			return p.places.find([]string{"services", svc.Name, "build", "dockerfile_inline"}).String()
		}
		return place{file: cmp.Or(path, build.Dockerfile), line: i + 1}.String()
	}
	return ""
}
