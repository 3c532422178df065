package box

import (
	"bytes"
	"testing"
)

// If a relay is led to another guest's socket, that guest does not know the secret.
func TestGuests_residence(t *testing.T) {
	t.Parallel()
	key := []byte("key")
	names, secrets := map[string]bool{}, [][]byte{key}
	for _, residence := range []func(string) (string, []byte){NewGuests(GuestConfig{ID: "one", Key: key}).residence, NewGuests(GuestConfig{ID: "two", Key: key}).residence} {
		for _, user := range []string{"", "nobody", "1000"} {
			name, secret := residence(user)
			if again, same := residence(user); again != name || !bytes.Equal(same, secret) {
				t.Errorf("%q: differs in another process", user)
			}
			if names[name] {
				t.Errorf("%q: name is also that of another guest", user)
			}
			for _, known := range secrets {
				if bytes.Equal(known, secret) {
					t.Errorf("%q: secret is also that of another guest", user)
				}
			}
			names[name], secrets = true, append(secrets, secret)
		}
	}
}
