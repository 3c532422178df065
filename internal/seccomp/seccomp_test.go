package seccomp

import (
	"errors"
	"os"
	"path/filepath"
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
