package conformance

import (
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// Browsers checks the seccomp profile for browsers. The image of base has sh, unshare, chroot and mount, and the user
// nobody.
func Browsers(t *testing.T, p fumehood.Provider, base fumehood.Spec) {
	t.Helper()
	for profile, allowed := range map[string]map[string]bool{
		"": {"unshare -U true": false, "unshare -Ur chroot / true": false, "unshare -Urm true": false},
		fumehood.SeccompBrowsers: {
			"unshare -U true": true, "unshare -Ur chroot / true": true, "unshare -Urnip -f true": true, "unshare -Urm true": false, "unshare -Uru true": false,
			"unshare -Ur mount -t tmpfs x /tmp": false, "chroot / true": false,
		},
	} {
		base.Seccomp = profile
		sb, err := p.Start(t.Context(), base)
		if err != nil {
			t.Fatal(err)
		}
		for _, user := range []string{"", "nobody"} {
			if user != "" && sb.Info().OneUser {
				continue
			}
			for script, want := range allowed {
				if user == "" && strings.HasPrefix(script, "unshare -Ur") {
					want = false // the kernel lets only CAP_SETFCAP map root
				}
				res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", script + " 2>&1"}, Dir: "/"})
				if err != nil || res.Success() != want {
					t.Errorf("profile %q, user %q: %s: got %+v, %v, want success %v", profile, user, script, res, err, want)
				}
			}
		}
		if err := sb.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	base.Seccomp = "other"
	_, err := p.Start(t.Context(), base)
	WantError(t, err, fumehood.ErrConfig)
}
