package docker

import (
	"bytes"
	"testing"
)

// A relay that is led to another guest's socket finds nobody there who knows the secret.
func TestEachResidentGuestHasASecretOfItsOwn(t *testing.T) {
	t.Parallel()
	g := &guests{svc: &service{id: "one", sb: &sandbox{key: []byte("key")}}}
	other := &guests{svc: &service{id: "two", sb: g.svc.sb}}
	names, secrets := map[string]bool{}, [][]byte{g.svc.sb.key}
	for _, of := range []func(string) (string, []byte){g.residence, other.residence} {
		for _, user := range []string{"", "nobody", "1000"} {
			name, secret := of(user)
			if again, same := of(user); again != name || !bytes.Equal(same, secret) {
				t.Errorf("%q: not the same for another process", user)
			}
			if names[name] {
				t.Errorf("%q: the name of another guest", user)
			}
			for _, known := range secrets {
				if bytes.Equal(known, secret) {
					t.Errorf("%q: a secret that others know", user)
				}
			}
			names[name], secrets = true, append(secrets, secret)
		}
	}
}
