package guests

import (
	"bytes"
	"testing"
)

// A relay that is led to another guest's socket finds nobody there who knows the secret.
func TestEachResidentGuestHasASecretOfItsOwn(t *testing.T) {
	t.Parallel()
	key := []byte("key")
	names, secrets := map[string]bool{}, [][]byte{key}
	for _, of := range []func(string) (string, []byte){New(Config{ID: "one", Key: key}).residence, New(Config{ID: "two", Key: key}).residence} {
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
