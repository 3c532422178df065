package seccomp

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestLoad_Default(t *testing.T) {
	text, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text, "\n\t") || !strings.HasPrefix(text, `{"defaultAction":"SCMP_ACT_ERRNO",`) {
		t.Errorf("got %.100q", text)
	}
	if got, err := Load(Unconfined); err != nil || got != Unconfined {
		t.Errorf("got %q, %v", got, err)
	}
}

// The profile for browsers is the default one with three changes.
func TestLoad_Browsers(t *testing.T) {
	rules := func(name string) []string {
		text, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parse([]byte(text)); err != nil || again != text {
			t.Errorf("%q is not a profile: %v", name, err)
		}
		var p struct{ Syscalls []json.RawMessage }
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, rule := range p.Syscalls {
			all = append(all, string(rule))
		}
		return all
	}
	own, browsers := rules(""), rules(fumehood.SeccompBrowsers)
	var added []string
	for _, rule := range browsers {
		if !slices.Contains(own, rule) {
			added = append(added, rule)
		}
	}
	want := []string{
		`{"names":["clone"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":100794368,"op":"SCMP_CMP_MASKED_EQ"}],"excludes":{"caps":["CAP_SYS_ADMIN"],"arches":["s390","s390x"]}}`,
		`{"names":["clone"],"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":100794368,"op":"SCMP_CMP_MASKED_EQ"}],"comment":"s390 parameter ordering for clone is different","includes":{"arches":["s390","s390x"]},"excludes":{"caps":["CAP_SYS_ADMIN"]}}`,
		`{"names":["unshare"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":100794496,"op":"SCMP_CMP_MASKED_EQ"}]}`,
		`{"names":["chroot"],"action":"SCMP_ACT_ALLOW"}`,
	}
	if len(browsers) != len(own)+2 || !slices.Equal(added, want) {
		t.Errorf("%d and %d rules, added %s", len(own), len(browsers), added)
	}
}

func TestLoad_File(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"good", `{"defaultAction": "SCMP_ACT_LOG"}`, ""},
		{"rules", `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"name": "a", "action": "SCMP_ACT_KILL"}, {"names": ["b"], "action": "SCMP_ACT_TRAP", "includes": {"minKernel": "4.8"}}]}`, ""},
		{"empty", "", "invalid JSON"},
		{"cut", `{"defaultAction": "SCMP_ACT_LOG"`, "invalid JSON"},
		{"list", "[]", "invalid JSON"},
		{"two", `{"defaultAction": "SCMP_ACT_LOG"} {}`, "text after the profile"},
		{"no action", "{}", `defaultAction: unknown action ""`},
		{"misspelled", `{"defaultAction": "SCMP_ACT_ALLOW", "syscals": []}`, `unknown field "syscals"`},
		{"no names", `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_KILL"}]}`, "syscalls[0]: no names"},
		{"null", `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [null]}`, "syscalls[0]: no names"},
		{"bad action", `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["a"], "action": "deny"}]}`, `syscalls[0]: unknown action "deny"`},
		{"large", strings.Repeat(" ", maxSize+1), "larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "profile.json")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(file)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v", err)
			}
		})
	}
}
