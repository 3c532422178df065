package compose

import (
	"slices"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestRuntimes_Choose(t *testing.T) {
	stock := Runtimes{Default: "runc", Programs: map[string]string{"runc": "runc", "runsc": "/usr/bin/runsc", "strong": "/opt/gvisor/runsc", "nvidia": "nvidia-container-runtime"}}
	strict := Runtimes{Default: "strong", Programs: stock.Programs}
	for name, c := range map[string]struct {
		has              Runtimes
		user, file, want string
	}{
		"nothing":                     {stock, "", "", ""},
		"the user's":                  {stock, "runsc", "", "runsc"},
		"the file's":                  {stock, "", "runsc", "runsc"},
		"weaker than the user's":      {stock, "runsc", "runc", "runsc"},
		"stronger than the user's":    {stock, "runc", "runsc", "runsc"},
		"as strong as the user's":     {stock, "runsc", "kata", "kata"},
		"weaker than the default":     {strict, "", "runc", ""},
		"stronger than nothing known": {Runtimes{}, "", "runsc", "runsc"},
		"weaker, with nothing known":  {Runtimes{}, "runsc", "runc", "runsc"},
		"not of the user's kind":      {stock, "runc", "nvidia", "runc"},
		"of another kind":             {stock, "", "nvidia", "nvidia"},
		"weaker than one not listed":  {stock, "sysbox-runc", "runc", "sysbox-runc"},
		"weaker than such a default":  {Runtimes{Default: "sysbox-runc"}, "", "runc", ""},
		"the user's own":              {stock, "sysbox-runc", "sysbox-runc", "sysbox-runc"},
		"by its program":              {stock, "runsc", "strong", "strong"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.has.Choose(c.user, c.file); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestRuntimes_Guest(t *testing.T) {
	has := Runtimes{Default: "box", Programs: map[string]string{"runc": "runc", "box": "/usr/local/bin/runsc"}}
	for runtime, want := range map[string]string{"": ReadableGuest, "box": ReadableGuest, "runsc": ReadableGuest, "runc": GuestProgram, "crun": GuestProgram} {
		if got := has.Guest(runtime); got != want {
			t.Errorf("%q: got %s, want %s", runtime, got, want)
		}
	}
	if got := (Runtimes{}).Guest(""); got != GuestProgram {
		t.Errorf("of an unknown default: got %s", got)
	}
}

func TestApply_runtime(t *testing.T) {
	const file = "services: {a: {image: i, command: sleep infinity, runtime: runc}, b: {image: i}}"
	for name, c := range map[string]struct {
		pol         Policy
		a, b, guest string
		changed     bool
	}{
		"nothing chosen": {Policy{Volume: "guest"}, "runc", "", GuestProgram, false},
		"by the user":    {Policy{Volume: "guest", Runtime: "runsc"}, "runsc", "runsc", ReadableGuest, true},
		"by the daemon":  {Policy{Volume: "guest", Runtimes: Runtimes{Default: "runsc"}}, "", "", ReadableGuest, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, changes := applied(t, file, fumehood.Compose{}, c.pol)
			a, b := p.project.Services["a"], p.project.Services["b"]
			if a.Runtime != c.a || b.Runtime != c.b || !slices.Equal(a.Entrypoint, []string{c.guest}) || p.Services()[0].Guest != c.guest {
				t.Errorf("got %q and %q, the guest %v", a.Runtime, b.Runtime, a.Entrypoint)
			}
			if got := has(changes, "a", "runtime"); got != c.changed {
				t.Errorf("changes are %v", changes)
			}
		})
	}
}
